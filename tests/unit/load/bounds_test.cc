// Tests bounds_by_tokens(): with --batch-tokens, the upper limits of the tokens, sequences and targets of a
// micro-batch, and the upper limits of several micro-batches together.
#include <gtest/gtest.h>

#include "tessera/base/random.h"
#include "tessera/load/datasets.h"

namespace tessera {
namespace {

Sample sample_of(int64_t tokens, int64_t targets) {
  Sample sample{std::vector<int32_t>(static_cast<size_t>(tokens), 5), {}};
  sample.labels.assign(sample.ids.size(), kNoTarget);
  std::fill_n(sample.labels.begin(), targets, 7);
  return sample;
}

TEST(BoundsByTokens, OfKnownSamples) {
  const std::vector<Sample> samples{sample_of(4, 4), sample_of(2, 0), sample_of(6, 3), sample_of(3, 1)};
  const BatchBounds b = bounds_by_tokens(samples, 7);
  EXPECT_EQ(b.num_tokens, 7);
  EXPECT_EQ(b.num_sequences, 2);  // the two shortest samples have 2 + 3 tokens; a third one does not fit
  // bounds_by_tokens() first takes the samples with the most targets per token. The first sample takes 4 of the 7
  // tokens and has 4 targets. The remaining 3 tokens are half of the third sample, which has 3 targets in 6 tokens.
  // This half counts as 1.5 targets. The sum of 5.5 is rounded down.
  EXPECT_EQ(b.num_targets, 5);
  // The length of a token's sequence, averaged over all tokens: sum of squared lengths / sum of lengths.
  EXPECT_EQ(b.mean_length, (16 + 4 + 36 + 9) / 15);
  const BatchBounds two = bounds_by_tokens(samples, 7, 2);
  EXPECT_EQ(two.num_tokens, 14);
  EXPECT_EQ(two.num_sequences, 3);  // the three shortest samples have 2 + 3 + 4 tokens; all four have 15
  const BatchBounds all = bounds_by_tokens(samples, 1000);
  EXPECT_EQ(all.num_tokens, 15);
  EXPECT_EQ(all.num_sequences, 4);
  EXPECT_EQ(all.num_targets, 8);
}

// No micro-batch of any epoch exceeds the bounds of one micro-batch (`one`). All micro-batches of a step together do
// not exceed the bounds of `grad_accum` micro-batches (`step`).
TEST(BoundsByTokens, HoldForEveryMicroBatch) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    RandomStream random(seed, 33);
    const auto between = [&](int64_t low, int64_t high) {
      return low + static_cast<int64_t>(random.next_below(static_cast<uint64_t>(high - low + 1)));
    };
    const int64_t longest = between(1, 60);
    std::vector<Sample> samples;
    std::vector<int64_t> lengths;
    for (int64_t i = between(1, 60); i > 0; --i) {
      lengths.push_back(between(1, longest));
      samples.push_back(sample_of(lengths.back(), between(0, lengths.back())));
    }
    BatchOptions options{.num_samples = std::ssize(samples), .grad_accum = between(1, 3), .seed = seed};
    options.batch_tokens = between(longest, 3 * longest);
    options.lengths = lengths;
    const BatchBounds one = bounds_by_tokens(samples, options.batch_tokens),
                      step = bounds_by_tokens(samples, options.batch_tokens, options.grad_accum);
    const auto check = [](const PackedBatch& batch, const BatchBounds& bounds) {
      ASSERT_LE(std::ssize(batch.ids), bounds.num_tokens);
      ASSERT_LE(std::ssize(batch.starts) - 1, bounds.num_sequences);
      ASSERT_LE(batch.num_targets, bounds.num_targets);
    };
    for (int64_t epoch = 0; epoch < 4; ++epoch) {
      const BatchPlan plan(options, epoch);
      for (int64_t s = 0; s < plan.num_steps(); ++s) {
        std::vector<PackedBatch> window;
        for (const MicroBatch& m : plan.step(s)) window.push_back(pack(samples, m.indices));
        for (const PackedBatch& batch : window) ASSERT_NO_FATAL_FAILURE(check(batch, one));
        ASSERT_NO_FATAL_FAILURE(check(merged(window), step));
      }
    }
  }
}

}  // namespace
}  // namespace tessera
