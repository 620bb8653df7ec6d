#include "tessera/launch/launch.h"
#include "tessera/base/host_resources.h"
#include "tessera/comm/launcher_link.h"

#include <gtest/gtest.h>

#include "tessera/app/machine.h"

namespace tessera {
namespace {

TEST(Launch, FindsItsLauncher) {
  EXPECT_FALSE(find_launcher({}));
  for (const char* text : {"", "nonsense", "/board:7"}) EXPECT_FALSE(find_launcher({{"LAUNCHED_BY_TESSERA", text}}));
  const LauncherLink sent{.board = "/board", .listener = 7, .token = "a:b"};
  const auto link = find_launcher({{"LAUNCHED_BY_TESSERA", sent.to_string()}});
  ASSERT_TRUE(link);
  EXPECT_EQ(link->board, "/board");
  EXPECT_EQ(link->listener, 7);
  EXPECT_EQ(link->token, "a:b");
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
