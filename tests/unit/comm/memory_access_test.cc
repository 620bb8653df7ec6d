#ifdef TESSERA_TEST_MPI
#include "tessera/comm/ranks/memory_access.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <random>

namespace tessera {
namespace {

using Chains = std::vector<std::vector<pid_t>>;

TEST(NearestCommon, OfSiblingsCousinsAndStrangers) {
  EXPECT_EQ(nearest_common(Chains{{30, 20, 10}, {30, 20, 10}}), 30) << "mpirun is the parent of all its ranks";
  EXPECT_EQ(nearest_common(Chains{{31, 20, 10}, {32, 20, 10}, {20, 10}}), 20) << "two of the ranks run in a shell each";
  EXPECT_EQ(nearest_common(Chains{{31, 21}, {32, 22}}), 0) << "their only common ancestor is process 1";
  EXPECT_EQ(nearest_common(Chains{{30}, {}}), 0);
  EXPECT_EQ(nearest_common(Chains{}), 0);
}

TEST(NearestCommon, InRandomTrees) {
  std::mt19937 random(5);
  for (int trial = 0; trial < 500; ++trial) {
    const int size = 3 + static_cast<int>(random() % 40);
    std::vector<int> parents(static_cast<size_t>(size), 1);  // parents[p] is the parent of process p + 2
    for (int p = 1; p < size; ++p) parents[static_cast<size_t>(p)] = 1 + static_cast<int>(random() % (p + 1));
    const auto parent_of = [&](int pid) { return parents[static_cast<size_t>(pid - 2)]; };
    const auto descends = [&](int pid, int from) {
      while (pid > 1 && pid != from) pid = parent_of(pid);
      return pid == from;
    };
    Chains chains;
    std::vector<int> ranks;
    for (size_t i = 0; i < 1 + random() % 4; ++i) {
      ranks.push_back(2 + static_cast<int>(random() % static_cast<unsigned>(size)));
      chains.emplace_back();
      for (int pid = parent_of(ranks.back()); pid > 1; pid = parent_of(pid)) chains.back().push_back(pid);
    }
    // Each parent's id is smaller than its child's, so the nearest common ancestor is the one with the largest id. 0
    // means that process 1 is the only common ancestor.
    int expected = 0;
    for (int pid = 2; pid < size + 2; ++pid) {
      const bool is_above_all =
          std::all_of(ranks.begin(), ranks.end(), [&](int rank) { return rank != pid && descends(rank, pid); });
      if (is_above_all) expected = pid;
    }
    EXPECT_EQ(nearest_common(chains), expected) << "trial " << trial;
  }
}

TEST(Ancestors, BeginWithTheParentAndEndBeforeProcess1) {
  const auto chain = ancestors();
  ASSERT_FALSE(chain.empty());
  EXPECT_EQ(chain[0], getppid());
  EXPECT_EQ(std::count(chain.begin(), chain.end(), 1), 0);
}

TEST(MemoryAccess, IsGivenBack) {
  const auto chain = ancestors();
  EXPECT_EQ(MemoryAccess::named(), 0);
  {
    const MemoryAccess nobody(0);
    EXPECT_EQ(MemoryAccess::named(), 0);
    const MemoryAccess parent(chain[0]);
    EXPECT_EQ(MemoryAccess::named(), chain[0]);
    {
      const MemoryAccess again(chain[0]), farther(chain.back());
      EXPECT_EQ(MemoryAccess::named(), chain.back());
    }
    EXPECT_EQ(MemoryAccess::named(), chain[0]);
  }
  EXPECT_EQ(MemoryAccess::named(), 0);
}

}  // namespace
}  // namespace tessera
#endif
