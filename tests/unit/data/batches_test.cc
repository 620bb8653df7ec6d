#include "tessera/data/batches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "tessera/base/random.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::vector<int64_t>> step_of(const BatchPlan& plan, int64_t step) {
  std::vector<std::vector<int64_t>> lists;
  for (const MicroBatch& m : plan.step(step)) lists.emplace_back(m.indices.begin(), m.indices.end());
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
  window[0].sequence_numbers = {8, 9};  // window[2] has no numbers, so merged() numbers its samples 0 and 1
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
  EXPECT_EQ(a.num_steps(), 2);
  EXPECT_THAT(step_of(a, 0), ElementsAre(ElementsAre(0, 1), ElementsAre(4, 5)));
  EXPECT_THAT(step_of(b, 0), ElementsAre(ElementsAre(2, 3), ElementsAre(6, 7)));
  EXPECT_EQ(b.step(0)[1].first_sequence, 6);
  // In the last step, each rank has one micro-batch. The two ranks share the last three samples.
  EXPECT_THAT(step_of(a, 1), ElementsAre(ElementsAre(8)));
  EXPECT_THAT(step_of(b, 1), ElementsAre(ElementsAre(9, 10)));
  EXPECT_EQ(b.step(1)[0].first_sequence, 1);
}

// Every sample occurs once per epoch. Every rank has the same number of steps and micro-batches. The k-th micro-batch
// of a rank has at most one sample more or less than the k-th micro-batch of rank 0. In some cases, the
// samples divide evenly among the ranks and micro-batches. In other cases, they do not.
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
              for (const MicroBatch& m : plan.step(s)) {
                seen.insert(seen.end(), m.indices.begin(), m.indices.end());
                sizes.back().push_back(m.indices.size());
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

// The order of the samples depends on the seed and the epoch, but not on the number of ranks: in a step, two ranks
// together get the same samples as one rank with micro-batches of twice the size.
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
    for (const MicroBatch& m : plan.step(3)) shared.insert(shared.end(), m.indices.begin(), m.indices.end());
  }
  std::vector<int64_t> alone;
  for (const auto& indices : step_of(BatchPlan(options, 1), 3))
    alone.insert(alone.end(), indices.begin(), indices.end());
  EXPECT_THAT(shared, ::testing::UnorderedElementsAreArray(alone));
}

TEST(BatchPlan, NoSamplesGiveNoSteps) {
  EXPECT_EQ(BatchPlan({.num_samples = 0}, 0).num_steps(), 0);
  EXPECT_EQ(BatchPlan({.num_samples = 0, .batch_tokens = 8}, 0).num_steps(), 0);
}

// ---- micro-batches that are filled by tokens

TEST(BatchPlan, ByTokensCutsTheOrderWhereASampleDoesNotFit) {
  const std::vector<int64_t> lengths{3, 4, 2, 8, 1, 1, 6};
  const BatchOptions options{
      .num_samples = 7, .grad_accum = 3, .shuffle = false, .batch_tokens = 8, .lengths = lengths};
  const BatchPlan plan(options, 0);
  // A micro-batch has at most 8 tokens, so the samples are cut into micro-batches with the lengths {3, 4}, {2}, {8} and
  // {1, 1, 6}. A step has at most three micro-batches. In a step, the micro-batch with the most tokens comes
  // first, because the default cost of a sample is its length.
  EXPECT_EQ(plan.num_steps(), 2);
  EXPECT_THAT(step_of(plan, 0), ElementsAre(ElementsAre(3), ElementsAre(0, 1), ElementsAre(2)));
  EXPECT_EQ(plan.step(0)[0].first_sequence, 3);
  EXPECT_THAT(step_of(plan, 1), ElementsAre(ElementsAre(4, 5, 6)));

  BatchOptions limited = options;
  limited.max_batch_samples = 2;
  EXPECT_THAT(step_of(BatchPlan(limited, 0), 1), ElementsAre(ElementsAre(6), ElementsAre(4, 5)));

  // Several ranks get the micro-batches of a step in rounds. In each round, every rank gets one micro-batch. The second
  // round goes from the last rank to the first. If no micro-batch is left for a rank, the rank gets an empty one.
  BatchOptions of_ranks = options;
  of_ranks.world_size = 2, of_ranks.grad_accum = 2;
  const BatchPlan first(of_ranks, 0);
  of_ranks.rank = 1;
  const BatchPlan second(of_ranks, 0);
  EXPECT_EQ(first.num_steps(), 1);
  EXPECT_THAT(step_of(first, 0), ElementsAre(ElementsAre(3), ElementsAre(2)));
  EXPECT_THAT(step_of(second, 0), ElementsAre(ElementsAre(4, 5, 6), ElementsAre(0, 1)));
  of_ranks.world_size = 5, of_ranks.rank = 4, of_ranks.grad_accum = 1;
  EXPECT_THAT(step_of(BatchPlan(of_ranks, 0), 0), ElementsAre(IsEmpty()));
}

// A random job whose micro-batches are filled by tokens. `ways`: all (ranks, grad_accum) whose product is the job's
// number of micro-batches per step.
struct TokenJob {
  std::vector<int64_t> lengths;
  BatchOptions options;
  std::vector<std::pair<int64_t, int64_t>> ways;
  int64_t epoch;

  explicit TokenJob(uint64_t seed) {
    RandomStream random(seed, 31);
    const auto between = [&](int64_t low, int64_t high) {
      return low + static_cast<int64_t>(random.next_below(static_cast<uint64_t>(high - low + 1)));
    };
    const int64_t longest = between(1, 200);
    lengths.resize(static_cast<size_t>(between(1, 150)));
    for (int64_t& length : lengths) length = random.next_below(4) == 0 ? longest : between(1, longest);
    options.num_samples = std::ssize(lengths);
    options.batch_tokens = between(longest, 4 * longest);
    options.seed = seed;
    options.shuffle = between(0, 3) > 0;
    if (between(0, 2) == 0) options.max_batch_samples = between(1, 5);
    options.cost = [](int64_t length) { return length * (length + 50); };
    options.lengths = lengths;
    const int64_t micro_batches = std::vector<int64_t>{1, 2, 4, 6, 12}[random.next_below(5)];
    for (int64_t ranks = 1; ranks <= micro_batches; ++ranks) {
      if (micro_batches % ranks == 0) ways.emplace_back(ranks, micro_batches / ranks);
    }
    epoch = between(0, 3);
  }
  BatchPlan plan(std::pair<int64_t, int64_t> way, int64_t rank) const {
    BatchOptions of_rank = options;
    of_rank.world_size = way.first, of_rank.grad_accum = way.second, of_rank.rank = rank;
    return BatchPlan(of_rank, epoch);
  }
};

// Each sample occurs once per epoch. No micro-batch has more than batch_tokens tokens or max_batch_samples samples. All
// ranks have the same number of steps, and in each step the same number of micro-batches. In all `ways` of a job, a
// step has the same micro-batches, and each of its samples has the same sequence number.
TEST(BatchPlan, ByTokensIsExactForEveryDivision) {
  for (uint64_t seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(seed);
    const TokenJob job(seed);
    std::vector<std::vector<std::pair<int64_t, int64_t>>> steps;  // [step]: pairs (number within the step, sample)
    std::vector<std::vector<std::vector<int64_t>>> cuts;          // [step]: the micro-batches
    for (const auto& way : job.ways) {
      const auto [ranks, grad_accum] = way;
      const int64_t num_steps = job.plan(way, 0).num_steps();
      std::vector<std::vector<std::pair<int64_t, int64_t>>> of_way(static_cast<size_t>(num_steps));
      std::vector<std::vector<std::vector<int64_t>>> cuts_of_way(static_cast<size_t>(num_steps));
      for (int64_t rank = 0; rank < ranks; ++rank) {
        const BatchPlan plan = job.plan(way, rank);
        ASSERT_EQ(plan.num_steps(), num_steps);
        for (int64_t s = 0; s < num_steps; ++s) {
          const auto micro_batches = plan.step(s);
          ASSERT_EQ(micro_batches.size(), job.plan(way, 0).step(s).size());
          ASSERT_LE(std::ssize(micro_batches), grad_accum);
          if (s + 1 < num_steps) {
            ASSERT_EQ(std::ssize(micro_batches), grad_accum);
          }
          for (const MicroBatch& m : micro_batches) {
            int64_t tokens = 0, number = m.first_sequence;
            for (const int64_t index : m.indices) {
              tokens += job.lengths[static_cast<size_t>(index)];
              of_way[static_cast<size_t>(s)].emplace_back(number++, index);
            }
            ASSERT_LE(tokens, job.options.batch_tokens);
            ASSERT_LE(std::ssize(m.indices), job.options.max_batch_samples);
            if (!m.indices.empty())
              cuts_of_way[static_cast<size_t>(s)].emplace_back(m.indices.begin(), m.indices.end());
          }
        }
      }
      std::vector<int64_t> seen;
      for (auto& step : of_way) {
        std::sort(step.begin(), step.end());
        for (size_t i = 0; i < step.size(); ++i) {
          ASSERT_EQ(step[i].first, static_cast<int64_t>(i));
          seen.push_back(step[i].second);
        }
      }
      for (auto& step : cuts_of_way) std::sort(step.begin(), step.end());
      std::sort(seen.begin(), seen.end());
      ASSERT_EQ(std::ssize(seen), job.options.num_samples);
      for (size_t i = 0; i < seen.size(); ++i) ASSERT_EQ(seen[i], static_cast<int64_t>(i));
      if (steps.empty()) steps = of_way, cuts = cuts_of_way;
      ASSERT_EQ(of_way, steps);
      ASSERT_EQ(cuts_of_way, cuts);
    }
  }
}

// Without shuffling, the samples keep their order. A micro-batch ends only where the next sample would exceed
// batch_tokens or max_batch_samples, or at the end of the epoch.
TEST(BatchPlan, ByTokensKeepsTheOrderWithoutShuffling) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    TokenJob job(seed);
    job.options.shuffle = false;
    BatchOptions by_samples = job.options;
    by_samples.batch_tokens = 0;
    by_samples.batch_size = job.options.num_samples;
    const std::vector<int64_t> order = step_of(BatchPlan(by_samples, job.epoch), 0)[0];
    const BatchPlan plan = job.plan({1, 1}, 0);
    size_t at = 0;
    for (int64_t s = 0; s < plan.num_steps(); ++s) {
      const std::vector<int64_t> micro_batch = step_of(plan, s)[0];
      int64_t tokens = 0;
      for (const int64_t index : micro_batch) {
        ASSERT_EQ(index, order[at++]);
        tokens += job.lengths[static_cast<size_t>(index)];
      }
      if (at == order.size()) continue;
      ASSERT_TRUE(std::ssize(micro_batch) == job.options.max_batch_samples ||
                  tokens + job.lengths[static_cast<size_t>(order[at])] > job.options.batch_tokens);
    }
    ASSERT_EQ(at, order.size());
  }
}

// A plan is a function of its options and the epoch. Its fill is at least as high as without shuffling.
TEST(BatchPlan, ByTokensRepeatsAndIsFuller) {
  int64_t num_fuller = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    TokenJob job(seed);
    job.options.shuffle = true;
    const BatchPlan plan = job.plan({1, 1}, 0), again = job.plan({1, 1}, 0);
    ASSERT_EQ(plan.num_steps(), again.num_steps());
    int64_t tokens = 0;
    for (int64_t s = 0; s < plan.num_steps(); ++s) {
      const std::vector<int64_t> micro_batch = step_of(plan, s)[0];
      ASSERT_EQ(step_of(again, s)[0], micro_batch);
      for (const int64_t index : micro_batch) tokens += job.lengths[static_cast<size_t>(index)];
    }
    ASSERT_EQ(plan.fill().num_micro_batches, plan.num_steps());
    ASSERT_DOUBLE_EQ(plan.fill().share,
                     static_cast<double>(tokens) / static_cast<double>(plan.num_steps() * job.options.batch_tokens));
    // The epoch's order, cut where a sample does not fit.
    BatchOptions by_samples = job.options;
    by_samples.batch_tokens = 0;
    by_samples.batch_size = job.options.num_samples;
    const std::vector<int64_t> order = step_of(BatchPlan(by_samples, job.epoch), 0)[0];
    std::vector<int64_t> lengths;
    for (const int64_t index : order) {
      lengths.push_back(job.lengths[static_cast<size_t>(index)]);
    }
    BatchOptions in_order = job.options;
    in_order.lengths = lengths;
    in_order.shuffle = false;
    const double share = BatchPlan(in_order, 0).fill().share;
    ASSERT_GE(plan.fill().share, share);
    num_fuller += plan.fill().share > share;
  }
  EXPECT_GT(num_fuller, 50);
}

// Micro-batches are in random order, and lengths do not decide where a sample is in the epoch: each tenth of the steps
// has about the same mean length, and the micro-batches at the end are not the emptiest ones.
TEST(BatchPlan, ByTokensMixesLengths) {
  std::vector<int64_t> lengths(20000);
  RandomStream random(5, 37);
  for (int64_t& length : lengths)
    length = random.next_below(5) == 0 ? 512 : 1 + static_cast<int64_t>(random.next_below(400));
  const double mean = static_cast<double>(std::accumulate(lengths.begin(), lengths.end(), int64_t{0})) / 20000;
  for (const int64_t batch_tokens : {512, 1024, 8192}) {
    BatchOptions options{.num_samples = 20000, .seed = 3, .batch_tokens = batch_tokens};
    options.lengths = lengths;
    const BatchPlan plan(options, 0);
    constexpr int64_t kParts = 10;
    for (int64_t part = 0; part < kParts; ++part) {
      int64_t tokens = 0, samples = 0;
      const int64_t begin = plan.num_steps() * part / kParts, end = plan.num_steps() * (part + 1) / kParts;
      for (int64_t s = begin; s < end; ++s) {
        const std::vector<int64_t> micro_batch = step_of(plan, s)[0];
        for (const int64_t index : micro_batch) {
          tokens += lengths[static_cast<size_t>(index)];
          ++samples;
        }
      }
      EXPECT_NEAR(static_cast<double>(tokens) / static_cast<double>(samples) / mean, 1, 0.08) << batch_tokens;
      EXPECT_GT(static_cast<double>(tokens) / static_cast<double>((end - begin) * batch_tokens),
                plan.fill().share - 0.03)
          << batch_tokens;
    }
  }
}

// In each round of a step, every rank gets one micro-batch. No micro-batch of a round costs less than a micro-batch of
// the next round. In a step, the total costs of two ranks differ by at most the cost of the most costly micro-batch
// of the step.
TEST(BatchPlan, ByTokensBalancesCosts) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    const TokenJob job(seed);
    for (const auto& way : job.ways) {
      const int64_t num_steps = job.plan(way, 0).num_steps();
      for (int64_t s = 0; s < num_steps; ++s) {
        std::vector<int64_t> totals, highest, lowest;
        int64_t most = 0;
        for (int64_t rank = 0; rank < way.first; ++rank) {
          const BatchPlan plan = job.plan(way, rank);
          const auto micro_batches = plan.step(s);
          highest.resize(micro_batches.size(), 0);
          lowest.resize(micro_batches.size(), std::numeric_limits<int64_t>::max());
          totals.push_back(0);
          for (size_t round = 0; round < micro_batches.size(); ++round) {
            int64_t cost = 0;
            for (const int64_t i : micro_batches[round].indices)
              cost += job.options.cost(job.lengths[static_cast<size_t>(i)]);
            highest[round] = std::max(highest[round], cost);
            lowest[round] = std::min(lowest[round], cost);
            totals.back() += cost;
            most = std::max(most, cost);
          }
        }
        for (size_t round = 0; round + 1 < highest.size(); ++round) ASSERT_GE(lowest[round], highest[round + 1]);
        const auto [low, high] = std::minmax_element(totals.begin(), totals.end());
        ASSERT_LE(*high - *low, most);
      }
    }
  }
}

// ---- epochs

TEST(EpochSteps, BySamplesAllEpochsAreEqual) {
  const EpochSteps steps({.num_samples = 11, .batch_size = 2, .grad_accum = 2});  // 3 steps per epoch
  EXPECT_EQ(steps.steps_of(2), 6);
  EXPECT_EQ(steps.steps_of(2.1), 7);
  EXPECT_EQ(steps.place_of(7).epoch, 2);
  EXPECT_EQ(steps.place_of(7).step, 1);
  EXPECT_DOUBLE_EQ(steps.epochs_after(4), 4.0 / 3);
  EXPECT_FALSE(steps.ends_after(0));
  EXPECT_FALSE(steps.ends_after(4));
  EXPECT_TRUE(steps.ends_after(6));
}

// EpochSteps must give each epoch as many steps as the epoch's BatchPlan has. Its answer for a step must not depend on
// the steps that it was asked for before.
TEST(EpochSteps, ByTokensFollowsThePlans) {
  int num_different = 0;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    const TokenJob job(seed);
    const EpochSteps steps(job.options);
    constexpr int64_t kEpochs = 6;
    int64_t step = 0;
    std::set<int64_t> numbers;
    for (int64_t epoch = 0; epoch < kEpochs; ++epoch) {
      const int64_t num_steps = BatchPlan(job.options, epoch).num_steps();
      numbers.insert(num_steps);
      const EpochSteps fresh(job.options);
      ASSERT_EQ(fresh.steps_of(static_cast<double>(epoch)), step);
      ASSERT_EQ(fresh.steps_of(static_cast<double>(epoch) + 0.5), step + (num_steps + 1) / 2);
      for (int64_t s = 0; s < num_steps; ++s, ++step) {
        const EpochSteps resumed(job.options);
        for (const EpochSteps* any : {&steps, &resumed}) {
          ASSERT_EQ(any->place_of(step).epoch, epoch);
          ASSERT_EQ(any->place_of(step).step, s);
          ASSERT_DOUBLE_EQ(any->epochs_after(step),
                           static_cast<double>(epoch) + static_cast<double>(s) / static_cast<double>(num_steps));
          ASSERT_EQ(any->ends_after(step), step > 0 && s == 0);
        }
      }
    }
    ASSERT_EQ(steps.epochs_after(step), static_cast<double>(kEpochs));
    num_different += numbers.size() > 1;
  }
  EXPECT_GT(num_different, 20);  // otherwise too few jobs have epochs with different numbers of steps
}

}  // namespace
}  // namespace tessera
