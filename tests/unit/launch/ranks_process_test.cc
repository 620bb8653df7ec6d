#include "tessera/launch/ranks_process.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

namespace tessera {
namespace {

// Runs a shell script as two ranks.
RanksEnd run(const std::string& script, const Environment& environment = {}) {
  const auto board = StatusBoard::create(2);
  ForwardedSignals signals;
  return run_ranks("/bin/sh", 2, {"-c", script}, environment, *board, signals);
}

TEST(RanksProcess, EveryRankHasItsVariables) {
  // A descriptor is open in rank 0 only: the socket where the other ranks find rank 0.
  const RanksEnd end = run(
      "[ $WORLD_SIZE = 2 ] && [ $LOCAL_RANK = $RANK ] && [ $LOCAL_WORLD_SIZE = 2 ] && [ $MASTER_ADDR = 127.0.0.1 ] && "
      "[ $MASTER_PORT -gt 0 ] && [ \"$KEPT\" = yes ] && rest=${LAUNCHED_BY_TESSERA#*:} && listener=${rest%%:*} && "
      "if [ $RANK = 0 ]; then [ -S /proc/self/fd/$listener ]; else [ $listener = -1 ]; fi && exit $((5 + RANK))",
      {{"KEPT", "yes"}, {"RANK", "7"}, {"WORLD_SIZE", "9"}, {"PATH", "/usr/bin:/bin"}});
  ASSERT_EQ(end.statuses.size(), 2u);
  EXPECT_EQ(WEXITSTATUS(end.statuses[0]), 5);
  EXPECT_EQ(WEXITSTATUS(end.statuses[1]), 6);
}

TEST(RanksProcess, RanksThatEndWell) {
  const RanksEnd end = run("exit 0");
  EXPECT_EQ(end.statuses, (std::vector<int>{0, 0}));
  EXPECT_TRUE(end.lost.empty());
}

TEST(RanksProcess, ARankThatDiesEndsTheOthers) {
  const RanksEnd end = run("if [ $RANK = 1 ]; then kill -SEGV $$; fi; exec sleep 1000", {{"PATH", "/usr/bin:/bin"}});
  EXPECT_EQ(end.lost, std::vector<int>{1});
  EXPECT_EQ(text_of_end(end.statuses[1]), "was killed by signal 11 (Segmentation fault)");
  EXPECT_EQ(WTERMSIG(end.statuses[0]), SIGKILL);
}

TEST(RanksProcess, AProgramThatIsNotThere) {
  const auto board = StatusBoard::create(2);
  ForwardedSignals signals;
  testing::internal::CaptureStderr();
  const RanksEnd end = run_ranks("/nowhere/tessera", 2, {}, {}, *board, signals);
  EXPECT_EQ(text_of_end(end.statuses[0]), "ended with exit code 127");
  EXPECT_NE(testing::internal::GetCapturedStderr().find("cannot start the program of a rank"), std::string::npos);
}

TEST(RanksProcess, AnUnknownExitStatusIsNotASuccess) {
  std::signal(SIGCHLD, SIG_IGN);  // the system then discards the exit status of children
  const RanksEnd end = run("exit 0");
  std::signal(SIGCHLD, SIG_DFL);
  EXPECT_NE(end.statuses[0], 0);
  EXPECT_NE(end.statuses[1], 0);
}

}  // namespace
}  // namespace tessera
