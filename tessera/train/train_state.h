// What a training run has done so far, beside parameters and optimizer states: what a checkpoint must carry so that the
// run goes on bit for bit.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tessera/engine/engine.h"
#include "tessera/report/record.h"
#include "tessera/settings/settings.h"
#include "tessera/store/engine_checkpoint.h"

namespace tessera {

// One evaluation's outcome; what was not asked for is absent.
struct EvalOutcome {
  std::optional<double> loss, exact_match, f1;
};

// A line of the table at the end: an epoch (or, with evaluation every n steps, the time up to an evaluation).
struct EpochRow {
  double epoch = 0, train_loss = 0;
  EvalOutcome eval;
};

// What tells a run that goes wrong.
struct TrainHealth {
  int64_t num_skipped = 0;           // steps whose update was skipped
  int64_t skipped_in_a_row = 0;      // of the last steps, without those that searched the loss scale
  std::optional<double> first_loss;  // the first that was finite
  int64_t sound_checkpoint = -1;     // the step of the last checkpoint with which a loss was finite; -1: none
};

struct TrainState {
  int64_t step = 0;        // updates done
  double total_loss = 0;   // sum of the steps' losses, here and below of those that are finite
  int64_t loss_steps = 0;  // their number
  double logged_loss = 0;  // the same since the last line
  int64_t logged_steps = 0;
  double row_loss = 0;  // the same since the last row of the table
  int64_t row_steps = 0;
  int64_t num_samples = 0, num_tokens = 0, num_targets = 0;
  EvalOutcome before;
  bool evaluated_before = false;
  TrainHealth health;
  std::vector<EpochRow> rows;
  std::optional<double> best_metric;
  int64_t best_step = 0;
  int64_t num_updates = 0;                   // steps that were not skipped
  int64_t evaluated_step = -1;               // the last step that was evaluated after
  Record eval_timing = Record::object();     // of the last evaluation
  std::optional<LossScaleState> loss_scale;  // of fp16
  std::optional<bool> fused_micro_batches;   // of the run that saved it
  int64_t metrics_bytes = 0;                 // of metrics.jsonl when the checkpoint was made
  double runtime_s = 0;                      // over all runs up to the checkpoint
  // Throughput without each run's first step (which also brings memory and caches into place), evaluations and
  // checkpoints.
  double steady_s = 0;
  int64_t steady_samples = 0, steady_tokens = 0;
  std::vector<int64_t> stop_steps;  // of checkpoints that were made because the run was stopped there
  std::string origin;               // the checkpoint of another folder that the run began from; empty: none

  std::string to_json(const Record& fingerprint) const;
  // InputError when the text is not what to_json makes.
  static TrainState from_json(const std::string& text, const std::string& where);
  // The same; UsageError also when `fingerprint` differs, naming the settings.
  static TrainState from_json(const std::string& text, const Record& fingerprint, const std::string& where);
  static Record fingerprint_in(const std::string& text, const std::string& where);
};

// What of a model's configuration its parameters mean nothing without.
Record model_fingerprint(const ModelConfig& config);
// A checksum of all tokens and targets.
std::string checksum_of(const std::vector<Sample>& samples);
// The settings and facts that a resumed run must share with the run that made the checkpoint to repeat it, except those
// that may change (continuation.h).
Record train_fingerprint(const Settings& settings, const ModelConfig& config, const std::vector<Sample>& samples,
                         int num_ranks);
// What is computed with must be the same on all ranks: UsageError on each that names a rank and the key. Collective.
void check_ranks_agree(Communicator& world, const Record& fingerprint);

// Writes the arrays of an engine and the state to a checkpoint.
void fill_checkpoint(CheckpointPart& part, Engine& engine, const TrainState& state, const Record& fingerprint);

}  // namespace tessera
