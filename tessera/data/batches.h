// Assigns samples to micro-batches and ranks, and lays them out without padding.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tessera/data/prompts.h"

namespace tessera {

// B sequences with N tokens in total, one after the other.
struct PackedBatch {
  std::vector<int32_t> ids, labels;  // [N]
  std::vector<int32_t> starts;       // [B + 1]: sequence b is tokens [starts[b], starts[b + 1])
  int32_t num_targets = 0;           // labels that are not kNoTarget
  // [B] the numbers of the sequences in their step, over all micro-batches and ranks; empty: 0, 1, …
  std::vector<int64_t> sequence_numbers{};
};

// Joins the micro-batches of one step into one.
PackedBatch merged(std::span<const PackedBatch> batches);

// Packs the samples with these indices, in this order. Without indices, the batch has no sequences: starts = {0}.
PackedBatch pack(std::span<const Sample> samples, std::span<const int64_t> indices);

struct BatchOptions {
  int64_t num_samples = 0;
  int64_t batch_size = 1;  // per rank and micro-batch
  int64_t grad_accum = 1;  // micro-batches per step
  int64_t world_size = 1, rank = 0;
  uint64_t seed = 0;
  bool shuffle = true;
};

// One epoch for one rank. It is a pure function of the options and the epoch's number. A resumed run therefore gets the
// same steps as an uninterrupted one.
//
// Global micro-batch k takes the next batch_size × world_size samples of the epoch's order, and rank r takes the r-th
// slice. Over all ranks, every sample occurs exactly once per epoch. If the last micro-batch is short, it is divided as
// evenly as possible, and ranks may get fewer samples or none. The last step may have fewer micro-batches. Both numbers
// are the same on every rank, as collectives require.
class BatchPlan {
 public:
  BatchPlan(const BatchOptions& options, int64_t epoch);

  int64_t num_micro_batches() const { return ceil_divide(options_.num_samples, global_batch_size()); }
  int64_t num_steps() const { return ceil_divide(num_micro_batches(), options_.grad_accum); }

  // The indices of this rank's samples in each micro-batch of a step in [0, num_steps()). Valid while the plan exists.
  // The cost does not depend on the step.
  std::vector<std::span<const int64_t>> step(int64_t step) const;
  // The number, within its step and over all ranks, of this rank's first sample in a micro-batch of the step.
  int64_t first_sequence(int64_t step, int64_t micro_batch) const;

 private:
  static int64_t ceil_divide(int64_t a, int64_t b) { return (a + b - 1) / b; }
  int64_t global_batch_size() const { return options_.batch_size * options_.world_size; }

  BatchOptions options_;
  std::vector<int64_t> order_;  // [num_samples]
};

}  // namespace tessera
