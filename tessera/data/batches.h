// Assigns samples to micro-batches and ranks, and lays them out without padding.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
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
  int64_t batch_size = 1;  // samples per rank and micro-batch
  int64_t grad_accum = 1;  // micro-batches per step
  int64_t world_size = 1, rank = 0;
  uint64_t seed = 0;
  bool shuffle = true;
  // If not 0: a micro-batch has as many samples as fit into this number of tokens, at most max_batch_samples, and
  // batch_size has no meaning. No sample may be longer.
  int64_t batch_tokens = 0;
  int64_t max_batch_samples = std::numeric_limits<int64_t>::max();
  std::span<const int64_t> lengths{};  // [num_samples] tokens of each sample; must outlive the plan
  // The work of a sample of this length, in any unit. It balances micro-batches over ranks.
  std::function<int64_t(int64_t length)> cost = [](int64_t length) { return length; };
};

// A rank's samples of a micro-batch.
struct MicroBatch {
  std::span<const int64_t> indices;  // empty: the rank only takes part in the collectives
  int64_t first_sequence = 0;        // number of the first one within the step, over all ranks; the others follow
};

// One epoch for one rank. It is a pure function of the options and the epoch's number. A resumed run therefore gets the
// same steps as an uninterrupted one. Over all ranks, every sample occurs exactly once per epoch. Every rank has the
// same number of steps and of micro-batches in a step, as collectives require.
//
// By samples: global micro-batch k takes the next batch_size × world_size samples of the epoch's order, and rank r
// takes the r-th slice. If the last micro-batch is short, it is divided as evenly as possible, and ranks may get fewer
// samples or none. The last step may have fewer micro-batches.
//
// By tokens: the epoch's order is cut into micro-batches. Each takes the next samples until one does not fit. A step
// takes the next grad_accum × world_size micro-batches, and the last step the rest. The samples of a step therefore
// depend on this product only, and not on the ranks. Micro-batches of a step that ranks compute at the same time have
// about the same cost: the most costly ones come first.
class BatchPlan {
 public:
  BatchPlan(const BatchOptions& options, int64_t epoch);

  int64_t num_steps() const;
  // This rank's micro-batches of a step in [0, num_steps()). Valid while the plan exists. The time does not depend on
  // the step's number.
  std::vector<MicroBatch> step(int64_t step) const;

 private:
  bool by_tokens() const { return options_.batch_tokens > 0; }
  int64_t global_batch_size() const { return options_.batch_size * options_.world_size; }
  int64_t micro_batches_of_step() const { return options_.grad_accum * options_.world_size; }
  void cut_by_tokens();
  std::vector<MicroBatch> step_by_samples(int64_t step) const;
  std::vector<MicroBatch> step_by_tokens(int64_t step) const;
  std::span<const int64_t> part(int64_t begin, int64_t end) const {
    return std::span(order_).subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
  }

  BatchOptions options_;
  std::vector<int64_t> order_;   // [num_samples]
  std::vector<int64_t> starts_;  // by tokens: micro-batch k is [starts_[k], starts_[k + 1]) of the order
};

// The steps of all epochs, one after the other. Epochs of micro-batches by samples have the same number of steps. By
// tokens, the number depends on the order of the samples, and each epoch is counted once, when it is needed.
class EpochSteps {
 public:
  explicit EpochSteps(BatchOptions options);

  struct Place {
    int64_t epoch, step;  // step within the epoch
  };
  Place place_of(int64_t step) const;
  // The epochs that `step` steps complete, a fraction for the last one.
  double epochs_after(int64_t step) const;
  // The steps of a number of epochs. The last one may be a fraction, which is rounded up to full steps.
  int64_t steps_of(double epochs) const;
  // Whether an epoch ends after this number of steps.
  bool ends_after(int64_t step) const { return step > 0 && place_of(step).step == 0; }

 private:
  int64_t end_of(int64_t epoch) const;  // steps up to the end of this epoch

  BatchOptions options_;
  int64_t steps_per_epoch_ = 0;        // 0: they differ
  mutable std::vector<int64_t> ends_;  // of the first epochs
};

}  // namespace tessera
