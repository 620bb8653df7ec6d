// Assigns samples to micro-batches and ranks, and packs the samples of a micro-batch without padding.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "tessera/data/samples.h"

namespace tessera {

// B sequences with N tokens in total, one after the other.
struct PackedBatch {
  std::vector<int32_t> ids, labels;  // [N]
  std::vector<int32_t> starts;       // [B + 1]: sequence b is tokens [starts[b], starts[b + 1])
  int32_t num_targets = 0;           // labels that are not kNoTarget
  // [B]: the number of each sequence in its step, counted from 0 over all micro-batches and ranks. If empty, the
  // numbers are 0, 1, …, B - 1.
  std::vector<int64_t> sequence_numbers{};
  // [B]: the number of each sequence's row in the data of a program (Example::number). Empty: not known.
  std::vector<int64_t> row_numbers{};
};

// Joins micro-batches of one step into one batch.
PackedBatch merged(std::span<const PackedBatch> batches);

// Packs the samples with these indices, in this order. If `indices` is empty, the batch has no sequences: starts = {0}.
PackedBatch pack(const Samples& samples, std::span<const int64_t> indices);

struct BatchOptions {
  int64_t num_samples = 0;
  int64_t batch_size = 1;  // samples per rank and micro-batch
  int64_t grad_accum = 1;  // micro-batches per step
  int64_t world_size = 1, rank = 0;
  uint64_t seed = 0;
  bool shuffle = true;
  // If not 0, a micro-batch has as many samples as fit into this number of tokens, but at most max_batch_samples.
  // batch_size then has no effect. No sample may have more than batch_tokens tokens.
  int64_t batch_tokens = 0;
  int64_t max_batch_samples = std::numeric_limits<int64_t>::max();
  // [num_samples] tokens of each sample, for batch_tokens. Must outlive the BatchPlan and the EpochSteps.
  std::span<const int64_t> lengths{};
  // The cost of computing a sample of `length` tokens. With batch_tokens, the plan balances the costs of the ranks. The
  // unit does not matter, because the plan only adds and compares costs.
  std::function<int64_t(int64_t length)> cost = [](int64_t length) { return length; };
};

// The samples of one rank in one micro-batch.
struct MicroBatch {
  std::span<const int64_t> indices;  // if empty, the rank only takes part in the collectives
  // The number of the first of these samples. The samples of a step are numbered from 0, across all micro-batches and
  // ranks. The samples of this micro-batch have consecutive numbers.
  int64_t first_sequence = 0;
};

// How full the micro-batches of an epoch are, with batch_tokens.
struct Fill {
  int64_t num_micro_batches = 0;  // of all ranks and steps
  double share = 0;               // tokens of all samples / (num_micro_batches × batch_tokens)
};

// The batches of one rank in one epoch. The plan is a pure function of the options and the epoch's number. A resumed
// run therefore gets the same steps as an uninterrupted run. Over all ranks, every sample occurs exactly once per
// epoch. All ranks have the same number of steps, and the same number of micro-batches in each step, as collectives
// require.
//
// By samples (batch_tokens = 0): a global micro-batch takes the next batch_size × world_size samples of the epoch's
// order, and rank r takes slice r of them. If fewer samples are left for the last global micro-batch, they are divided
// as evenly as possible: a rank may get fewer than batch_size samples, or none. The last step may have fewer than
// grad_accum micro-batches.
//
// By tokens: the samples of the epoch's order are packed into micro-batches by best fit (packing.h), and the
// micro-batches are shuffled. Without shuffling, the samples stay in their order: a micro-batch takes samples until the
// next sample does not fit. A step takes the next grad_accum × world_size micro-batches, and the last step takes the
// remaining ones. The samples of a step therefore depend on this product, not on its two factors. Micro-batches that
// ranks compute at the same time have similar costs. Each step begins with its most costly micro-batches.
class BatchPlan {
 public:
  BatchPlan(const BatchOptions& options, int64_t epoch);

  int64_t num_steps() const;
  Fill fill() const;  // by tokens
  // This rank's micro-batches in `step`, which is in [0, num_steps()). The plan must outlive the result. A call for a
  // late step takes no longer than a call for an early step.
  std::vector<MicroBatch> step(int64_t step) const;

 private:
  int64_t num_micro_batches() const { return std::ssize(starts_) - 1; }  // by tokens
  bool by_tokens() const { return options_.batch_tokens > 0; }
  int64_t global_batch_size() const { return options_.batch_size * options_.world_size; }
  int64_t micro_batches_of_step() const { return options_.grad_accum * options_.world_size; }
  void pack_by_tokens(int64_t epoch);
  std::vector<MicroBatch> step_by_samples(int64_t step) const;
  std::vector<MicroBatch> step_by_tokens(int64_t step) const;
  std::span<const int64_t> part(int64_t begin, int64_t end) const {
    return std::span(order_).subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
  }

  BatchOptions options_;
  std::vector<int64_t> order_;   // [num_samples] indices of the samples; by tokens: grouped by micro-batch
  std::vector<int64_t> starts_;  // by tokens: micro-batch k has elements [starts_[k], starts_[k + 1]) of order_
};

// Numbers the steps from 0 across all epochs. With batches by samples, or without shuffling, all epochs have the same
// number of steps. Otherwise, the number of steps of an epoch depends on the order of its samples, and is counted when
// it is first needed, except for the first epoch.
class EpochSteps {
 public:
  explicit EpochSteps(BatchOptions options);

  struct Place {
    int64_t epoch, step;  // step within the epoch
  };
  Place place_of(int64_t step) const;
  // The number of epochs in the first `step` steps. In the middle of the second epoch, this number is 1.5.
  double epochs_after(int64_t step) const;
  // The number of steps in `epochs` epochs. For a fraction of an epoch, the steps are rounded up.
  int64_t steps_of(double epochs) const;
  // Whether an epoch ends after this number of steps.
  bool ends_after(int64_t step) const { return step > 0 && place_of(step).step == 0; }

  const std::optional<Fill>& fill() const { return fill_; }  // by tokens: of the first epoch

 private:
  int64_t end_of(int64_t epoch) const;  // number of steps from step 0 to the end of this epoch

  BatchOptions options_;
  std::optional<Fill> fill_;
  int64_t steps_per_epoch_ = 0;        // 0: the number differs between epochs
  mutable std::vector<int64_t> ends_;  // element e is end_of(e), for the epochs that were counted so far
};

}  // namespace tessera
