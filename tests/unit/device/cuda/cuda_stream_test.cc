// Tests the order of work on a GPU's streams. A stand-in replaces CUDA's runtime and runs each stream as a thread, so
// the tests need no GPU.
#include "tessera/device/cuda/cuda_stream.h"

#include <gtest/gtest.h>

#include <array>
#include <future>
#include <memory>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/base/random.h"

namespace tessera::cuda {
namespace {

using Waits = CudaStream::Waits;

constexpr size_t kBuffers = 5, kStreams = 5;
using Values = std::array<int64_t, kBuffers>;

View view_of_value(int64_t& value) {
  return {reinterpret_cast<std::byte*>(&value), DType::i64, {1}};
}

// The events of a buffer. `written` is recorded after its last write, and `read` has one event after each read since
// that write. Every user of the buffer waits for the last write. A writer also waits for the reads.
struct Uses {
  Event written;
  std::vector<Event> read;
};

// Runs a hundred random pieces of work on the streams. Each piece is a copy or a host task. Also computes the same
// values on this thread, one piece after the other. The results must match.
void run_and_compare(uint64_t seed) {
  RandomStream random(seed, 3);
  Values values{}, expected{};
  for (size_t i = 0; i < kBuffers; ++i) values[i] = expected[i] = static_cast<int64_t>(i) + 1;
  std::array<std::unique_ptr<Stream>, kStreams> streams;
  streams[0] = std::make_unique<CudaStream>(0, Waits::in_caller);  // like the stream of the GPU's kernels
  for (size_t i = 1; i < 4; ++i) streams[i] = std::make_unique<CudaStream>(0, Waits::in_own_thread);
  streams[4] = make_host_stream();  // like the stream of the CPU's kernels
  std::array<Uses, kBuffers> uses;
  for (int piece = 0; piece < 100; ++piece) {
    const size_t s = random.next_below(kStreams), from = random.next_below(kBuffers);
    const size_t to = (from + 1 + random.next_below(kBuffers - 1)) % kBuffers;
    Stream& stream = *streams[s];
    stream.wait(uses[from].written);
    stream.wait(uses[to].written);
    for (const Event& event : uses[to].read) stream.wait(event);
    const bool computes = s == 4 || (s > 0 && random.next_below(3) == 0);  // a host task, like a CPU kernel or file I/O
    if (computes) {
      stream.run([&values, from, to, piece] { values[to] = 3 * values[to] + values[from] + piece; });
      expected[to] = 3 * expected[to] + expected[from] + piece;
    } else {
      stream.copy(view_of_value(values[from]), view_of_value(values[to]));
      expected[to] = expected[from];
    }
    const Event done = stream.record();
    uses[from].read.push_back(done);
    uses[to] = {done, {}};
    if (random.next_below(20) == 0) done.synchronize();  // the next work then starts on an idle stream
  }
  for (const auto& stream : streams) stream->synchronize();
  EXPECT_EQ(values, expected) << "seed " << seed;
}

TEST(CudaStream, WorkOfAllStreamsFollowsTheOrderOfEvents) {
  for (uint64_t seed = 0; seed < 40; ++seed) run_and_compare(seed);
}

TEST(CudaStream, PassesWorkToCudaUnlessItWaitsForTheHost) {
  CudaStream stream(0, Waits::in_own_thread), other(0, Waits::in_own_thread);
  int64_t from = 7, to = 0;
  stream.copy(view_of_value(from), view_of_value(to));
  other.wait(stream.record());
  EXPECT_TRUE(other.native());
  other.synchronize();
  EXPECT_EQ(to, 7);
}

TEST(CudaStream, WaitsForTheHostWithoutBlockingTheCaller) {
  std::promise<void> go;
  int64_t from = 7, to = 0, last = 0;
  const auto host = make_host_stream();
  CudaStream stream(0, Waits::in_own_thread), compute(0, Waits::in_caller);
  host->run([&, ready = go.get_future().share()] {
    ready.wait();
    from = 8;
  });
  stream.wait(host->record());
  stream.copy(view_of_value(from), view_of_value(to));
  const Event copied = stream.record();
  EXPECT_FALSE(copied.reached());
  go.set_value();
  compute.wait(copied);
  compute.copy(view_of_value(to), view_of_value(last));
  compute.synchronize();
  EXPECT_EQ(last, 8);
  EXPECT_TRUE(copied.reached());
}

TEST(CudaStream, FinishesItsWorkBeforeItEnds) {
  int64_t from = 7, to = 0, last = 0;
  const auto host = make_host_stream();
  {
    CudaStream stream(0, Waits::in_own_thread);
    host->run([&] { from = 8; });
    stream.wait(host->record());
    stream.copy(view_of_value(from), view_of_value(to));
    stream.run([&] { last = to; });
  }
  EXPECT_EQ(to, 8);
  EXPECT_EQ(last, 8);
}

TEST(CudaStream, AFailureSkipsLaterWorkOnAllWaitingStreams) {
  const auto host = make_host_stream();
  CudaStream first(0, Waits::in_own_thread), second(0, Waits::in_own_thread), compute(0, Waits::in_caller);
  int64_t from = 7, to = 0;
  host->run([] { throw RunError("here", "it failed"); });
  first.wait(host->record());
  second.wait(first.record());
  second.copy(view_of_value(from), view_of_value(to));
  const Event copied = second.record();
  EXPECT_THROW(copied.synchronize(), RunError);
  EXPECT_FALSE(copied.reached());
  EXPECT_THROW(compute.wait(copied), RunError);
  EXPECT_THROW(first.native(), RunError);
  EXPECT_THROW(second.synchronize(), RunError) << "the error stays";
  EXPECT_EQ(to, 0);
}

}  // namespace
}  // namespace tessera::cuda
