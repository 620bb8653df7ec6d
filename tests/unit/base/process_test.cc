#include "tessera/base/process.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

namespace tessera {
namespace {

TEST(Process, IsKnownUntilItEnds) {
  const auto self = state_of_process(getpid());
  ASSERT_TRUE(self);
  EXPECT_EQ(self->letter, 'R');
  const pid_t child = fork();
  if (child == 0) {
    raise(SIGSTOP);
    _exit(0);
  }
  waitpid(child, nullptr, WUNTRACED);
  const auto stopped = state_of_process(child);
  ASSERT_TRUE(stopped);
  EXPECT_EQ(stopped->letter, 'T');
  EXPECT_GE(stopped->start_time, self->start_time);
  EXPECT_GT(self->start_time, 0u);
  kill(child, SIGKILL);
  siginfo_t info;
  waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT);
  EXPECT_FALSE(state_of_process(child)) << "the child has ended, although its parent has not yet waited for it";
  waitpid(child, nullptr, 0);
  EXPECT_FALSE(state_of_process(child));
}

}  // namespace
}  // namespace tessera
