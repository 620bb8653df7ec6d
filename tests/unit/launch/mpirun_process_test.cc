#include "tessera/launch/mpirun_process.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "tessera/launch/rank_watch.h"

namespace tessera {
namespace {

// Runs `program` in place of mpirun.
MpirunEnd run(const char* program) {
  const auto board = StatusBoard::create(2);
  StreamSocket streams;
  ForwardedSignals signals;
  return run_mpirun(program, 2, {}, {}, *board, streams, signals);
}

TEST(MpirunProcess, ItsExitCode) {
  EXPECT_EQ(run("/bin/false").code, 1);
  EXPECT_EQ(run("/bin/true").code, 0);
  EXPECT_EQ(run("/nowhere/mpirun").code, 127);
}

TEST(MpirunProcess, AnUnknownExitStatusIsNotASuccess) {
  std::signal(SIGCHLD, SIG_IGN);  // the system then discards the exit status of children
  const MpirunEnd end = run("/bin/false");
  std::signal(SIGCHLD, SIG_DFL);
  EXPECT_EQ(end.wait_error, ECHILD);
}

TEST(RankWatch, SeesARankThatDies) {
  const auto board = StatusBoard::create(3);
  const auto fork_rank = [&](int rank, bool ends_in_order) {
    const pid_t child = fork();
    if (child > 0) return child;
    board->join(rank);
    if (ends_in_order) board->end(rank, 0);
    pause();
    _exit(0);
  };
  const pid_t first = fork_rank(0, false), second = fork_rank(1, false), third = fork_rank(2, true);
  while (!board->absent().empty() || !board->has_ended(2)) usleep(1000);
  RankWatch watch(*board);
  std::vector<pollfd> events;
  watch.add_to(events);
  EXPECT_TRUE(watch.newly_lost().empty());
  const auto end = [&](pid_t child) {
    kill(child, SIGKILL);
    if (!events.empty()) poll(events.data(), events.size(), 10'000);
    waitpid(child, nullptr, 0);
    events.clear();
  };
  end(third);
  EXPECT_TRUE(watch.newly_lost().empty()) << "rank 2 had ended in order";
  watch.add_to(events);
  end(second);
  EXPECT_EQ(watch.newly_lost(), std::vector<int>{1});
  watch.add_to(events);
  end(first);
  EXPECT_EQ(watch.newly_lost(), std::vector<int>{0});
  EXPECT_TRUE(watch.newly_lost().empty());
  const int signal = watch.signal_of(0);  // unknown (0) before Linux 6.15
  EXPECT_TRUE(signal == SIGKILL || signal == 0) << signal;
}

}  // namespace
}  // namespace tessera
