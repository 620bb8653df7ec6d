// Detects a run that diverges: skipped updates, an exploding loss, non-finite parameters. Warns early, and ends the run
// when it is hopeless.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "tessera/base/record.h"
#include "tessera/engine/engine.h"
#include "tessera/log/console.h"
#include "tessera/optim/divergence.h"
#include "tessera/optim/loss_scaler.h"
#include "tessera/settings/settings.h"
#include "tessera/train/train_state.h"

namespace tessera {

// All ranks pass the same values, so all ranks do the same. Functions that end the run throw RunError.
class Health {
 public:
  struct Hooks {
    // Says how to begin again from the checkpoint of step `sound`, or without one if it is −1. May be collective.
    std::function<std::string(int64_t sound)> begin_again;
    // Logs a skipped update.
    std::function<void(const Record&)> log_skipped;
  };
  Health(const Settings& settings, int64_t vocab_size, Console& console, Hooks hooks);

  // Continues the health of a checkpoint's run.
  void restore(const TrainHealth& state, const std::optional<LossScaleState>& loss_scale);
  // For a checkpoint.
  TrainHealth state() const;
  std::optional<LossScaleState> loss_scale_state() const;
  // The checkpoints are not in the folder of this run.
  void forget_checkpoints() { state_.sound_checkpoint = -1; }

  double loss_scale() const { return scaler_ ? scaler_->scale() : 1; }
  bool has_loss_scale() const { return scaler_.has_value(); }
  int64_t num_skipped() const { return state_.num_skipped; }
  int64_t num_without_targets() const { return state_.num_without_targets; }

  // Judges step number `step`, which used `loss_scale`. `saved_step`: the step of the newest checkpoint. Counts and
  // reports a skipped update, and ends the run if too many in a row were skipped, or if gradients overflow at the
  // smallest loss scale.
  void watch(int64_t step, const StepResult& result, double loss_scale, int64_t saved_step);

  // Whether steps were skipped since the last update, or the loss is not usual: the parameters in newer checkpoints
  // than sound_checkpoint() may be unusable, although they are finite.
  bool is_in_doubt() const;
  int64_t sound_checkpoint() const { return state_.sound_checkpoint; }  // TrainHealth::sound_checkpoint

  // Called after the last step, `step`. Ends the run if its model is useless: no step has updated the parameters, or
  // the last losses are hopeless, also the loss of the last evaluation. Warns of other losses and updates that are
  // wrong. `evaluated`: the loss of the evaluation after the last step, if it counts.
  void check_end(int64_t step, int64_t num_updates, std::optional<double> evaluated);
  // Ends the run if parameters are NaN or infinite. Call it before parameters are saved, so that no file with good
  // parameters is replaced. Collective.
  void check_parameters(int64_t step, Engine& engine);

 private:
  void watch_loss(int64_t step, double loss);
  void report_skipped(int64_t step, const StepResult& result, double loss_scale, Overflow overflow);
  void note_no_targets(int64_t step);
  [[noreturn]] void end_hopeless(int64_t step, std::optional<double> evaluated);
  [[noreturn]] void end(const std::string& where, const std::string& what, const std::string& remedy);

  const Settings& settings_;
  Console& console_;
  const Hooks hooks_;
  TrainHealth state_;
  LossWatch losses_;
  std::optional<LossScaler> scaler_;  // fp16 only
};

}  // namespace tessera
