// Which samples meet in which micro-batch of which rank, and how they are laid out without padding.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tessera/data/prompts.h"

namespace tessera {

// B sequences, N tokens in all, one behind the other.
struct PackedBatch {
  std::vector<int32_t> ids, labels;  // [N]
  std::vector<int32_t> starts;       // [B + 1]: sequence b is tokens [starts[b], starts[b + 1])
  int32_t num_targets = 0;           // labels that are not kNoTarget
  // [B] the sequences' numbers in their step, over all micro-batches and ranks; empty: 0, 1, …
  std::vector<int64_t> sequence_numbers{};
};

// Micro-batches of one step as one.
PackedBatch merged(std::span<const PackedBatch> batches);

// The samples of these indices, in this order. No index at all gives a batch without sequences: starts = {0}.
PackedBatch pack(std::span<const Sample> samples, std::span<const int64_t> indices);

struct BatchOptions {
  int64_t num_samples = 0;
  int64_t batch_size = 1;  // of a rank, in a micro-batch
  int64_t grad_accum = 1;  // micro-batches in a step
  int64_t world_size = 1, rank = 0;
  uint64_t seed = 0;
  bool shuffle = true;
};

// One epoch, as one rank sees it: a pure function of the options and the epoch's number, so that a resumed run asks for
// the step it stopped at and gets what it would have got.
//
// Global micro-batch k takes the next batch_size × world_size samples of the epoch's order, rank r the r-th slice.
// Over all ranks every sample comes exactly once an epoch: the last micro-batch, when it is short, is shared out as
// evenly as can be, and ranks may get fewer samples in it or none. The last step may have fewer micro-batches. Both
// numbers are the same on every rank, as collectives need.
class BatchPlan {
 public:
  BatchPlan(const BatchOptions& options, int64_t epoch);

  int64_t num_micro_batches() const { return ceil_divide(options_.num_samples, global_batch_size()); }
  int64_t num_steps() const { return ceil_divide(num_micro_batches(), options_.grad_accum); }

  // The indices of this rank's samples in each micro-batch of a step in [0, num_steps()), valid while the plan lives.
  // The cost does not depend on the step.
  std::vector<std::span<const int64_t>> step(int64_t step) const;
  // The number in its step, over all ranks, of the first sample that this rank has in a micro-batch of the step.
  int64_t first_sequence(int64_t step, int64_t micro_batch) const;

 private:
  static int64_t ceil_divide(int64_t a, int64_t b) { return (a + b - 1) / b; }
  int64_t global_batch_size() const { return options_.batch_size * options_.world_size; }

  BatchOptions options_;
  std::vector<int64_t> order_;  // [num_samples]
};

}  // namespace tessera
