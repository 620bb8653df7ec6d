#include "tessera/base/start_thread.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <memory>

#include "tessera/base/error.h"
#include "tessera/base/thread_pool.h"

namespace tessera {
namespace {

TEST(StartThread, RunsWorkThatCannotBeCopiedAndStopsIt) {
  std::atomic<int> done = 0;
  {
    auto two = std::make_unique<int>(2);
    const std::jthread plain = start_thread("a test", [&, two = std::move(two)] { done += *two; });
    const std::jthread stopped = start_thread("a test", [&](const std::stop_token& stop) {
      while (!stop.stop_requested()) std::this_thread::yield();
      ++done;
    });
  }
  EXPECT_EQ(done, 3);
}

// Runs in a child process. Its stack limit, which is also the size of a thread's stack, exceeds the address space.
[[noreturn]] void start_without_room() {
  const rlimit room{size_t{1} << 32, RLIM_INFINITY};
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, size_t{1} << 40);
  pthread_setattr_default_np(&attributes);
  setrlimit(RLIMIT_AS, &room);
  int num_refused = 0;
  try {
    const std::jthread thread = start_thread("a test", [] {});
  } catch (const RunError& error) {
    num_refused += std::string(error.what()).starts_with("cannot start a thread for a test: Resource temporarily");
  }
  try {
    const ThreadPool pool(3);
  } catch (const RunError& error) {
    num_refused += std::string(error.what()).starts_with("cannot start a thread for computing: ");
  }
  std::_Exit(num_refused == 2 ? 0 : 9);
}

[[noreturn]] void throw_on_a_thread() {
  const std::jthread thread = start_thread("a test", [] { throw InputError("file", "is wrong"); });
  for (;;) std::this_thread::yield();
}

TEST(StartThreadDeathTest, AThreadThatCannotStartIsAnError) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer needs a large address space";
#endif
  EXPECT_EXIT(start_without_room(), testing::ExitedWithCode(0), "");
}

TEST(StartThreadDeathTest, AnExceptionEndsTheProcessWithItsExitCode) {
  EXPECT_EXIT(throw_on_a_thread(), testing::ExitedWithCode(3), "error: file: is wrong");
}

}  // namespace
}  // namespace tessera
