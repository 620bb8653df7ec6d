// The progress of a training run, except parameters and optimizer states. A checkpoint contains this state, so a
// resumed run repeats the original run bit for bit.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tessera/base/record.h"
#include "tessera/engine/engine.h"
#include "tessera/log/trainer_lines.h"
#include "tessera/optim/divergence.h"
#include "tessera/session/fingerprint.h"
#include "tessera/settings/settings.h"
#include "tessera/store/engine_checkpoint.h"
#include "tessera/store/model_writer.h"

namespace tessera {

// The result of one evaluation. Metrics that were not requested are empty.
struct EvalOutcome {
  std::optional<double> loss;
  std::optional<AnswerMetrics> answers;
};

// A row of the table at the end of the run: the steps between two evaluations, by default an epoch.
struct EpochRow {
  double epoch = 0, train_loss = 0;
  EvalOutcome eval;
};

// Indicators of a run that diverges.
struct TrainHealth {
  int64_t num_without_targets = 0;  // steps without a token that has a loss. They count in none of the other values
  int64_t num_skipped = 0;          // steps whose update was skipped
  // Steps skipped since the last update. Steps skipped in the search for fp16's loss scale (Overflow::searched) do not
  // count.
  int64_t skipped_in_a_row = 0;
  bool warned_of_loss = false;  // the warning of LossWatch::Verdict::diverges was printed
  LossWatch::State losses;      // the finite losses
  // Step of the last sound checkpoint; -1: none. A checkpoint is sound if a step after it updated the parameters, or if
  // such a step was skipped only because of the search for the loss scale. The loss must then also be usual
  // (LossWatch).
  int64_t sound_checkpoint = -1;
};

struct TrainState {
  int64_t step = 0;          // steps done, including steps with a skipped update
  double total_loss = 0;     // sum of the losses of all steps. All sums of losses here leave out NaN and infinity
  int64_t loss_steps = 0;    // the number of losses in total_loss
  double logged_loss = 0;    // sum of the losses since the previous logged line
  int64_t logged_steps = 0;  // the number of losses in logged_loss
  double row_loss = 0;       // sum of the losses since the previous row of the table
  int64_t row_steps = 0;     // the number of losses in row_loss
  int64_t num_samples = 0, num_tokens = 0, num_targets = 0;
  EvalOutcome before;  // the evaluation before the first step (--eval-before)
  bool evaluated_before = false;
  TrainHealth health;
  std::vector<EpochRow> rows;
  std::optional<double> best_metric;
  int64_t best_step = 0;
  int64_t num_updates = 0;                   // steps whose update was not skipped
  int64_t evaluated_step = -1;               // the step of the last evaluation
  Record eval_timing = Record::object();     // times and rates of the last evaluation
  std::optional<LossScaleState> loss_scale;  // fp16 only
  std::optional<bool> fused_micro_batches;   // whether the micro-batches of a step ran as one batch
  int64_t metrics_bytes = 0;                 // size of metrics.jsonl when the checkpoint was made
  double runtime_s = 0;                      // runtime up to the checkpoint, including earlier starts of the run
  // Time and work of steps, for the throughput. Evaluations and checkpoints do not count. The first step after each
  // start of the run does not count either, because it also allocates memory and fills caches.
  double steady_s = 0;
  int64_t steady_samples = 0, steady_tokens = 0;
  std::vector<int64_t> stop_steps;  // steps of checkpoints that exist only because a signal stopped the run
  std::string origin;               // the checkpoint in another folder that the run began from; empty: none
  Record choice;  // what a search has chosen for the run (chosen_settings.h); null: there was no search
  // The types of the initial model's tensors. Empty in checkpoints of older versions.
  std::optional<LoadedTypes> loaded_types;

  std::string to_json(const Record& fingerprint) const;
  // Reads the text of to_json(). Throws InputError if a key is missing or has another type. `where`: the file, for the
  // error.
  static TrainState from_json(const std::string& text, const std::string& where);
  // Reads the text in the same way, but also throws UsageError if the fingerprint in the text differs from
  // `fingerprint`. The error lists the settings that differ.
  static TrainState from_json(const std::string& text, const Record& fingerprint, const std::string& where);
  // The fingerprint in the text of to_json().
  static Record fingerprint_in(const std::string& text, const std::string& where);
};

// --eos-token in a run's fingerprint. Empty if the run did not have it.
std::string end_token_in(const Record& fingerprint);
// The settings and facts that determine the results of a run. A resumed run must have the same values as the
// checkpoint's run, except for keys that may change (continuation.h).
Record train_fingerprint(const Settings& settings, const ModelConfig& config, const Samples& samples, int num_ranks);

// Writes the arrays of an engine and the state to a checkpoint.
void fill_checkpoint(CheckpointPart& part, Engine& engine, const FrozenFiles& frozen, const TrainState& state,
                     const Record& fingerprint);

}  // namespace tessera
