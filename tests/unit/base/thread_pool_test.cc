#include "tessera/base/thread_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>

namespace tessera {
namespace {

TEST(ThreadPool, RunsEveryTaskOnce) {
  for (const int num_threads : {1, 2, 5}) {
    ThreadPool pool(num_threads);
    EXPECT_EQ(pool.num_threads(), num_threads);
    for (int round = 0; round < 200; ++round) {  // short loops, to test the change from one loop to the next
      std::vector<int> done(static_cast<size_t>(round), 0);
      pool.run(round, [&](int64_t i) { ++done[static_cast<size_t>(i)]; });
      EXPECT_EQ(std::accumulate(done.begin(), done.end(), 0), round);
      EXPECT_EQ(std::count(done.begin(), done.end(), 1), round);
    }
  }
}

TEST(ThreadPool, StopsInAnyStateOfItsThreads) {
  for (int round = 0; round < 1000; ++round) {
    ThreadPool pool(2 + round % 3);
    std::atomic<int> done{0};
    for (int loop = 0; loop < round % 3; ++loop) pool.run(5, [&](int64_t) { ++done; });
    ASSERT_EQ(done, 5 * (round % 3));
  }
}

TEST(ThreadPool, RangesCoverEveryIndexOnce) {
  ThreadPool pool(3);
  for (const int64_t count : {0, 1, 2, 3, 10, 100}) {
    std::vector<int> seen(static_cast<size_t>(count), 0);
    std::atomic<int> ranges{0};
    pool.for_ranges(count, 4, [&](int64_t begin, int64_t end) {
      ++ranges;
      for (int64_t i = begin; i < end; ++i) ++seen[static_cast<size_t>(i)];
    });
    EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), count);
    EXPECT_LE(ranges, std::min<int64_t>(3, (count + 3) / 4));
  }
}

TEST(ThreadPool, RethrowsTheErrorOfATaskAndStaysUsable) {
  ThreadPool pool(3);
  EXPECT_THROW(pool.run(50,
                        [](int64_t i) {
                          if (i == 17) throw std::runtime_error("seventeen");
                        }),
               std::runtime_error);
  std::atomic<int> done{0};
  pool.run(50, [&](int64_t) { ++done; });
  EXPECT_EQ(done, 50);
}

TEST(ThreadPool, CallersTakeTurns) {
  ThreadPool pool(3);
  const auto call = [&](int64_t& sum) {
    for (int round = 0; round < 200; ++round) {
      std::atomic<int64_t> of_loop{0};
      pool.run(7, [&](int64_t i) { of_loop += i; });
      sum += of_loop;
    }
  };
  int64_t here = 0, there = 0;
  std::thread other([&] { call(there); });
  call(here);
  other.join();
  EXPECT_EQ(here, 200 * 21);
  EXPECT_EQ(there, 200 * 21);
}

}  // namespace
}  // namespace tessera
