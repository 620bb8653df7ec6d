#include "tessera/data/batches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::vector<int64_t>> step_of(const BatchPlan& plan, int64_t step) {
  std::vector<std::vector<int64_t>> lists;
  for (const auto indices : plan.step(step)) lists.emplace_back(indices.begin(), indices.end());
  return lists;
}

TEST(Pack, PlacesSamplesOneAfterAnother) {
  const std::vector<Sample> samples = {
      {{1, 2}, {2, kNoTarget}}, {{3}, {kNoTarget}}, {{4, 5, 6}, {kNoTarget, 6, kNoTarget}}};
  const PackedBatch batch = pack(samples, std::vector<int64_t>{2, 0});
  EXPECT_THAT(batch.ids, ElementsAre(4, 5, 6, 1, 2));
  EXPECT_THAT(batch.labels, ElementsAre(kNoTarget, 6, kNoTarget, 2, kNoTarget));
  EXPECT_THAT(batch.starts, ElementsAre(0, 3, 5));
  EXPECT_EQ(batch.num_targets, 2);
}

TEST(Pack, NoSamplesGiveABatchWithoutSequences) {
  const PackedBatch batch = pack({}, {});
  EXPECT_THAT(batch.ids, IsEmpty());
  EXPECT_THAT(batch.starts, ElementsAre(0));
  EXPECT_EQ(batch.num_targets, 0);
}

TEST(Merged, IsOneBatchWithAllSamples) {
  const std::vector<Sample> samples = {
      {{1, 2}, {2, kNoTarget}}, {{3}, {kNoTarget}}, {{4, 5, 6}, {kNoTarget, 6, kNoTarget}}};
  std::vector<PackedBatch> window = {pack(samples, std::vector<int64_t>{2, 0}), pack({}, {}),
                                     pack(samples, std::vector<int64_t>{1, 0})};
  window[0].sequence_numbers = {8, 9};  // within the step; a batch without numbers is counted from 0
  const PackedBatch all = merged(window);
  EXPECT_THAT(all.ids, ElementsAre(4, 5, 6, 1, 2, 3, 1, 2));
  EXPECT_THAT(all.labels, ElementsAre(kNoTarget, 6, kNoTarget, 2, kNoTarget, kNoTarget, 2, kNoTarget));
  EXPECT_THAT(all.starts, ElementsAre(0, 3, 5, 6, 8));
  EXPECT_THAT(all.sequence_numbers, ElementsAre(8, 9, 0, 1));
  EXPECT_EQ(all.num_targets, 3);
  const PackedBatch none = merged({});
  EXPECT_THAT(none.ids, IsEmpty());
  EXPECT_THAT(none.starts, ElementsAre(0));
}

TEST(BatchPlan, SlicesGoByRank) {
  const BatchOptions options{
      .num_samples = 11, .batch_size = 2, .grad_accum = 2, .world_size = 2, .rank = 0, .seed = 0, .shuffle = false};
  BatchOptions second = options;
  second.rank = 1;
  const BatchPlan a(options, 0), b(second, 0);
  EXPECT_EQ(a.num_micro_batches(), 3);
  EXPECT_EQ(a.num_steps(), 2);
  EXPECT_THAT(step_of(a, 0), ElementsAre(ElementsAre(0, 1), ElementsAre(4, 5)));
  EXPECT_THAT(step_of(b, 0), ElementsAre(ElementsAre(2, 3), ElementsAre(6, 7)));
  // Three samples are left for two ranks, in a window of one micro-batch.
  EXPECT_THAT(step_of(a, 1), ElementsAre(ElementsAre(8)));
  EXPECT_THAT(step_of(b, 1), ElementsAre(ElementsAre(9, 10)));
}

// Every sample occurs once per epoch. Every rank has the same number of steps and micro-batches. Slices differ by at
// most one sample. Tested with sizes that divide evenly and sizes that do not.
TEST(BatchPlan, EverySampleExactlyOnceOverAllRanks) {
  for (const int64_t num_samples : {1, 2, 7, 16, 33}) {
    for (const int64_t batch_size : {1, 3}) {
      for (const int64_t grad_accum : {1, 2, 4}) {
        for (const int64_t world_size : {1, 2, 5}) {
          std::vector<int64_t> seen;
          std::vector<std::vector<size_t>> sizes;  // [rank][micro-batch]
          int64_t num_steps = 0;
          for (int64_t rank = 0; rank < world_size; ++rank) {
            const BatchPlan plan({num_samples, batch_size, grad_accum, world_size, rank, 3, true}, 2);
            sizes.emplace_back();
            num_steps = plan.num_steps();
            for (int64_t s = 0; s < plan.num_steps(); ++s) {
              for (const auto indices : plan.step(s)) {
                seen.insert(seen.end(), indices.begin(), indices.end());
                sizes.back().push_back(indices.size());
              }
            }
          }
          std::sort(seen.begin(), seen.end());
          ASSERT_EQ(std::ssize(seen), num_samples);
          for (int64_t i = 0; i < num_samples; ++i) ASSERT_EQ(seen[static_cast<size_t>(i)], i);
          const int64_t micro_batches = (num_samples + batch_size * world_size - 1) / (batch_size * world_size);
          ASSERT_EQ(num_steps, (micro_batches + grad_accum - 1) / grad_accum);
          for (const auto& of_rank : sizes) {
            ASSERT_EQ(std::ssize(of_rank), micro_batches);
            for (size_t k = 0; k < of_rank.size(); ++k) {
              ASSERT_LE(of_rank[k], static_cast<size_t>(batch_size));
              ASSERT_LE(of_rank[k], sizes[0][k] + 1);
              ASSERT_GE(of_rank[k] + 1, sizes[0][k]);
            }
          }
        }
      }
    }
  }
}

// The global batches do not depend on the number of ranks: in each step, all ranks together get the same set of
// samples.
TEST(BatchPlan, OrderDependsOnlyOnSeedAndEpoch) {
  const BatchOptions options{.num_samples = 40, .batch_size = 4, .grad_accum = 2, .seed = 5};
  EXPECT_EQ(step_of(BatchPlan(options, 1), 3), step_of(BatchPlan(options, 1), 3));
  EXPECT_NE(step_of(BatchPlan(options, 1), 3), step_of(BatchPlan(options, 2), 3));
  BatchOptions reseeded = options;
  reseeded.seed = 6;
  EXPECT_NE(step_of(BatchPlan(options, 1), 3), step_of(BatchPlan(reseeded, 1), 3));

  std::vector<int64_t> shared;
  for (int64_t rank = 0; rank < 2; ++rank) {
    const BatchPlan plan(
        {.num_samples = 40, .batch_size = 2, .grad_accum = 2, .world_size = 2, .rank = rank, .seed = 5}, 1);
    for (const auto indices : plan.step(3)) shared.insert(shared.end(), indices.begin(), indices.end());
  }
  std::vector<int64_t> alone;
  for (const auto& indices : step_of(BatchPlan(options, 1), 3))
    alone.insert(alone.end(), indices.begin(), indices.end());
  EXPECT_THAT(shared, ::testing::UnorderedElementsAreArray(alone));
}

TEST(BatchPlan, NoSamplesGiveNoSteps) {
  EXPECT_EQ(BatchPlan({.num_samples = 0}, 0).num_steps(), 0);
}

}  // namespace
}  // namespace tessera
