#include "tessera/base/periodic_thread.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <future>

namespace tessera {
namespace {

TEST(PeriodicThread, WorksALastTimeAtTheEnd) {
  std::atomic<int> calls{0};
  {
    PeriodicThread thread("a test", 3600, [&] { ++calls; });
    thread.stop();
    EXPECT_EQ(calls, 1) << "stop() does the work one last time, without waiting for the interval";
    thread.stop();
  }
  EXPECT_EQ(calls, 1);
}

TEST(PeriodicThread, RepeatsTheWorkWithSignalsBlocked) {
  std::promise<sigset_t> blocked;
  int calls = 0;
  PeriodicThread thread("a test", 0.0001, [&] {
    if (++calls != 4) return;
    sigset_t set;
    pthread_sigmask(SIG_SETMASK, nullptr, &set);
    blocked.set_value(set);
  });
  const sigset_t set = blocked.get_future().get();
  EXPECT_EQ(sigismember(&set, SIGTERM), 1);
  EXPECT_EQ(sigismember(&set, SIGUSR1), 1);
  sigset_t mine;
  pthread_sigmask(SIG_SETMASK, nullptr, &mine);
  EXPECT_EQ(sigismember(&mine, SIGTERM), 0);
}

}  // namespace
}  // namespace tessera
