#include "tessera/app/launch.h"

#include <gtest/gtest.h>

#include "tessera/app/machine.h"

namespace tessera {
namespace {

TEST(Launch, KilledRankByMpirunsWords) {
  const auto killed = killed_rank(
      "----\nmpirun noticed that process rank 12 with PID 0 on node vm exited on signal 9 (Killed).\n----\n");
  ASSERT_TRUE(killed);
  EXPECT_EQ(killed->rank, 12);
  EXPECT_EQ(killed->signal, 9);
  EXPECT_FALSE(killed_rank("mpirun detected that one or more processes exited with non-zero status"));
  EXPECT_FALSE(killed_rank(""));
}

TEST(Launch, FindsItsLauncher) {
  EXPECT_FALSE(find_launcher({}));
  EXPECT_FALSE(find_launcher({{"LAUNCHED_BY_TESSERA", "nonsense"}}));
  const auto link = find_launcher({{"LAUNCHED_BY_TESSERA", "/board:socket"}});
  ASSERT_TRUE(link);
  EXPECT_EQ(link->board, "/board");
  EXPECT_EQ(link->socket, "socket");
}

TEST(Threads, AreDividedAmongProcesses) {
  if (std::getenv("OMP_NUM_THREADS")) unsetenv("OMP_NUM_THREADS");
  const int all = threads_to_use(0);
  EXPECT_GE(all, 1);
  EXPECT_EQ(threads_to_use(0, 2), std::max(1, all / 2));
  EXPECT_EQ(threads_to_use(0, 10'000), 1);
  EXPECT_EQ(threads_to_use(3, 2), 3);
}

}  // namespace
}  // namespace tessera
