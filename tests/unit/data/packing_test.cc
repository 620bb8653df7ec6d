#include "tessera/data/packing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "tessera/base/random.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;

std::vector<std::vector<int64_t>> groups_of(const Packing& packing) {
  std::vector<std::vector<int64_t>> groups;
  for (size_t k = 0; k + 1 < packing.starts.size(); ++k) {
    groups.emplace_back(packing.order.begin() + packing.starts[k], packing.order.begin() + packing.starts[k + 1]);
  }
  return groups;
}

TEST(BestFit, TakesTheMicroBatchWithTheFewestFreeTokens) {
  const std::vector<int64_t> order{0, 1, 2, 3, 4, 5}, lengths{6, 5, 3, 4, 10, 2};
  // The sample with 3 tokens fits into the micro-batches {6} and {5}, and leaves fewer free tokens in {6}.
  EXPECT_THAT(groups_of(best_fit(order, lengths, {10, 9})),
              ElementsAre(ElementsAre(0, 2), ElementsAre(1, 3), ElementsAre(4), ElementsAre(5)));
  EXPECT_THAT(groups_of(best_fit(order, lengths, {10, 9, true})),
              ElementsAre(ElementsAre(0), ElementsAre(1, 2), ElementsAre(3), ElementsAre(4), ElementsAre(5)));
  EXPECT_THAT(groups_of(best_fit(order, lengths, {30, 2})),
              ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3), ElementsAre(4, 5)));
  EXPECT_THAT(groups_of(best_fit({}, {}, {10, 9})), ElementsAre());
}

// A sample with no tokens fits into a full micro-batch.
TEST(BestFit, OfSamplesWithoutTokens) {
  EXPECT_THAT(groups_of(best_fit(std::vector<int64_t>{1, 0, 2}, std::vector<int64_t>{0, 8, 0}, {8, 9})),
              ElementsAre(ElementsAre(1, 0, 2)));
}

struct Job {
  std::vector<int64_t> order, lengths;
  PackingLimits limits;

  explicit Job(uint64_t seed) {
    RandomStream random(seed, 35);
    const auto below = [&](int64_t n) { return static_cast<int64_t>(random.next_below(static_cast<uint64_t>(n))); };
    // Up to 9000 tokens, so that all levels of the set of rooms are used.
    const int64_t longest = 1 + below(below(3) == 0 ? 3000 : 40);
    lengths.resize(static_cast<size_t>(below(300)));
    for (int64_t& length : lengths) length = below(longest + 1);
    order.resize(lengths.size());
    std::iota(order.begin(), order.end(), 0);
    shuffle(std::span<int64_t>(order), seed, 36);
    limits = {std::max<int64_t>(1, longest * (1 + below(3)) + below(10)), below(4) == 0 ? 1 + below(6) : 1000};
  }
};

// Best fit by its definition: compares all micro-batches for each sample.
std::vector<std::vector<int64_t>> slow_best_fit(const Job& job) {
  std::vector<std::vector<int64_t>> groups;
  std::vector<int64_t> rooms;
  std::vector<size_t> added;  // of each micro-batch, when it got its last sample
  for (size_t i = 0; i < job.order.size(); ++i) {
    const int64_t length = job.lengths[static_cast<size_t>(job.order[i])];
    size_t best = groups.size();
    for (size_t k = 0; k < groups.size(); ++k) {
      if (rooms[k] < length || std::ssize(groups[k]) == job.limits.samples) continue;
      const bool is_better =
          best == groups.size() || rooms[k] < rooms[best] || (rooms[k] == rooms[best] && added[k] > added[best]);
      if (is_better) best = k;
    }
    if (best == groups.size()) {
      groups.emplace_back();
      rooms.push_back(job.limits.tokens);
      added.push_back(0);
    }
    groups[best].push_back(job.order[i]);
    rooms[best] -= length;
    added[best] = i;
  }
  return groups;
}

TEST(BestFit, EqualsItsDefinition) {
  for (uint64_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(seed);
    const Job job(seed);
    ASSERT_EQ(groups_of(best_fit(job.order, job.lengths, job.limits)), slow_best_fit(job));
  }
}

// One open micro-batch keeps the order, and is filled until the next sample does not fit. Best fit never needs more
// micro-batches, for any lengths and limits.
TEST(BestFit, NeedsAtMostTheMicroBatchesOfTheOrder) {
  int64_t num_fewer = 0;
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    SCOPED_TRACE(seed);
    Job job(seed);
    const size_t best = best_fit(job.order, job.lengths, job.limits).starts.size();
    job.limits.one_open = true;
    const Packing in_order = best_fit(job.order, job.lengths, job.limits);
    ASSERT_EQ(in_order.order, job.order);
    ASSERT_LE(best, in_order.starts.size());
    num_fewer += best < in_order.starts.size();
    int64_t tokens = 0, samples = 0;
    size_t k = 0;
    for (size_t i = 0; i < job.order.size(); ++i) {
      const int64_t length = job.lengths[static_cast<size_t>(job.order[i])];
      if (i == 0 || tokens + length > job.limits.tokens || samples == job.limits.samples) {
        ASSERT_EQ(in_order.starts[k++], static_cast<int64_t>(i));
        tokens = samples = 0;
      }
      tokens += length;
      ++samples;
    }
    ASSERT_EQ(k + 1, in_order.starts.size());
  }
  EXPECT_GT(num_fewer, 1000);
}

}  // namespace
}  // namespace tessera
