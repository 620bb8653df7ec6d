#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "rank_test.h"

namespace tessera {
namespace {

std::unique_ptr<World> world;
Transport transport = Transport::automatic;
bool uses_cuda = false;

int run(int size) {
  world = make_world(detect_ranks(environment_of_process()), {.timeout_s = 60, .transport = transport});
  if (world->size() != size) {
    std::fprintf(stderr, "the world has %d ranks, not %d\n", world->size(), size);
    world->abort(ExitCode::kRunFailed);
  }
  if (world->rank() > 0) {  // rank 0 prints the normal report; the other ranks print only failures
    auto& listeners = testing::UnitTest::GetInstance()->listeners();
    delete listeners.Release(listeners.default_result_printer());
    struct Failures : testing::EmptyTestEventListener {
      void OnTestPartResult(const testing::TestPartResult& result) override {
        if (!result.failed()) return;
        std::fprintf(stderr, "rank %d: %s:%d: %s\n", world->rank(), result.file_name(), result.line_number(),
                     result.message());
      }
    };
    listeners.Append(new Failures);
  }
  int failed = RUN_ALL_TESTS();
  const auto& outcome = *testing::UnitTest::GetInstance();
  if (outcome.successful_test_count() == 0 || outcome.skipped_test_count() > 0) {
    std::fprintf(stderr, "rank %d: no test passed, or a test was skipped\n", world->rank());
    failed = 1;
  }
  // The other ranks may wait for a rank that has failed. abort() ends all ranks.
  if (failed) world->abort(ExitCode::kRunFailed);
  world.reset();
  return 0;
}

}  // namespace

World& test_world() {
  return *world;
}

Transport test_transport() {
  return transport;
}

bool test_uses_cuda() {
  return uses_cuda;
}

}  // namespace tessera

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  int size = 0;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument.starts_with("--world=")) size = std::atoi(argument.c_str() + 8);
    if (argument == "--device=cuda") tessera::uses_cuda = true;
    if (argument == "--transport=messages") tessera::transport = tessera::Transport::messages;
    if (argument == "--transport=direct") tessera::transport = tessera::Transport::direct;
  }
  return tessera::run(size);
}
