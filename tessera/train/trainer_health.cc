// Detects divergence in a training run: skipped updates, an exploding loss, non-finite parameters.
#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "tessera/base/counted.h"
#include "tessera/optim/divergence.h"
#include "tessera/store/checkpoint_writer.h"
#include "tessera/train/trainer.h"

namespace tessera {

static std::string numbers_of(const StepResult& result) {
  const auto text = [](double x) { return std::isnan(x) ? "nan" : fmt::format("{}", x); };  // fmt may print "-nan"
  return fmt::format("the loss is {} and the norm of the gradients {}", text(result.loss()),
                     text(result.gradient_norm));
}

// Returns the advice for a run that diverges: make updates smaller, or use a wider type.
static std::string remedy_of(const Settings& settings) {
  using P = Settings::Precision;
  const char* const wider = settings.precision == P::fp16   ? ", or use --precision bf16 or fp32"
                            : settings.precision == P::bf16 ? ", or use --precision fp32"
                                                            : "";
  return fmt::format("Lower --lr (now {}), give a longer warm-up (--warmup-steps) or a smaller --max-grad-norm{}",
                     settings.lr, wider);
}

// Checks the result of a step. Counts and reports a skipped update. Ends the run if too many updates in a row were
// skipped, or if the overflow is Overflow::exhausted. `result` is the same on all ranks, so all ranks do the same.
void Trainer::watch_update(const StepResult& result, double loss_scale) {
  TrainHealth& health = state_.health;
  const bool is_finite = std::isfinite(result.loss());
  const Overflow overflow = loss_scaler_ ? loss_scaler_->update(!std::isfinite(result.gradient_norm)) : Overflow::none;
  const bool searches = overflow == Overflow::searched && is_finite;
  if (is_finite) watch_loss(result.loss());
  const bool is_usual = loss_watch_.verdict() == LossWatch::Verdict::usual;
  if (is_usual && (!result.skipped || searches)) health.sound_checkpoint = last_saved_step_;
  if (!result.skipped) {
    health.skipped_in_a_row = 0;
    return;
  }
  ++health.num_skipped;
  if (!searches) ++health.skipped_in_a_row;
  Record record{{"loss", result.loss()}, {"grad_norm", result.gradient_norm}};
  if (loss_scaler_) record["loss_scale"] = loss_scale;
  record["in_a_row"] = searches ? 0 : health.skipped_in_a_row;
  append("skipped", record, {});
  const std::string numbers = numbers_of(result);
  if (searches) {
    console_.note(
        fmt::format("Step {} skipped: gradients overflow at a loss scale of {}. The new loss scale is {} ({})",
                    state_.step, loss_scale, loss_scaler_->scale(), numbers));
    return;
  }
  const int64_t most = settings_.max_skipped_updates;
  const std::string limit = most > 0 ? fmt::format(" (the run ends at {}: --max-skipped-updates)", most) : "";
  console_.note(
      fmt::format("warning: step {} skipped: {}. The parameters stay as they are. Skipped updates in a row: {}{}",
                  state_.step, numbers, health.skipped_in_a_row, limit));
  if (overflow == Overflow::exhausted) {
    end_diverged(
        "fp16 loss scale",
        fmt::format("gradients overflow at the smallest scale, {}, in step {}: {}", loss_scale, state_.step, numbers),
        remedy_of(settings_) + ", or lower --min-loss-scale");
  }
  if (most > 0 && health.skipped_in_a_row >= most) {
    end_diverged(fmt::format("step {}", state_.step),
                 fmt::format("{} in a row skipped: {}", counted(health.skipped_in_a_row, "update"), numbers),
                 remedy_of(settings_));
  }
}

// Counts a step without a token that has a loss. Such a step says nothing about the model, so watch_update() is not
// called.
void Trainer::note_no_targets() {
  if (++state_.health.num_without_targets > 1) return;
  console_.note(
      fmt::format("warning: no token of step {} has a loss. Such a step updates nothing and counts in no mean. The "
                  "number of these steps is steps_without_targets in summary.json",
                  state_.step));
}

// `evaluated`: the loss of an evaluation after the last step, if it decides.
static std::string losses_of(const LossWatch& watch, std::optional<double> evaluated = std::nullopt) {
  const LossWatch::State& state = watch.state();
  return fmt::format("the loss {}is {:.6g}. The median of the last {} is {:.6g}, and the lowest such median was {:.6g}",
                     evaluated ? "of the last evaluation " : "", evaluated.value_or(state.recent.back()),
                     state.recent.size() == 1 ? "loss" : fmt::format("{} losses", state.recent.size()),
                     watch.smoothed(), state.lowest);
}

// Warns if training diverges, once until the smoothed loss is at its lowest value again. Ends the run if it is hopeless
// (--stop-on-divergence).
void Trainer::watch_loss(double loss) {
  loss_watch_.add(loss);
  bool& warned = state_.health.warned_of_loss;
  if (loss_watch_.is_lowest()) warned = false;
  const LossWatch::Verdict verdict = loss_watch_.verdict();
  if (verdict == LossWatch::Verdict::hopeless && settings_.stop_on_divergence) end_hopeless(std::nullopt);
  if (verdict < LossWatch::Verdict::diverges || std::exchange(warned, true)) return;
  console_.note(fmt::format("warning: step {}: training diverges: {}. {}", state_.step, losses_of(loss_watch_),
                            remedy_of(settings_)));
}

void Trainer::end_hopeless(std::optional<double> evaluated) {
  end_diverged(fmt::format("step {}", state_.step),
               fmt::format("training has diverged: {} (--no-stop-on-divergence continues in spite of this)",
                           losses_of(loss_watch_, evaluated)),
               remedy_of(settings_));
}

// The loss of the evaluation after the last step. Empty if there was none, if this loss is not finite, or if it is not
// above the loss before the first step (--eval-before).
std::optional<double> Trainer::evaluated_at_end() const {
  if (state_.rows.empty() || state_.evaluated_step != state_.step) return std::nullopt;
  const double loss = state_.rows.back().eval.loss.value();
  return std::isfinite(loss) && !(loss <= state_.before.loss.value_or(-1)) ? std::optional(loss) : std::nullopt;
}

// Ends the run with an error. The error names the last sound checkpoint (TrainHealth) if there is one. Collective.
void Trainer::end_diverged(const std::string& where, const std::string& what, const std::string& remedy) {
  if (background_) background_->wait();
  const int64_t step = state_.health.sound_checkpoint;
  const std::string folder = checkpoint_folder(output_dir_, step).string();
  const std::string from =
      step >= 0
          ? fmt::format(
                "The last sound checkpoint is {0}. A new run with other settings can begin from it: give --resume "
                "{0} and another --output-dir",
                folder)
          : "No checkpoint of the run is known to be sound: start again with --resume none";
  throw RunError(where, what, fmt::format("{}. {}", remedy, from));
}

// Called after the last step. Ends the run with an error if its model is useless: no step has updated the parameters,
// or the last losses are hopeless, also the loss of the last evaluation. Warns of other losses and updates that are
// wrong. Collective.
void Trainer::check_end() {
  const TrainHealth& health = state_.health;
  if (health.num_without_targets > 0) {
    console_.note(
        fmt::format("warning: in {} of {} steps, no token has a loss. These steps updated nothing. Increase "
                    "--max-length or --batch-size, or give --truncation context to keep the answers",
                    health.num_without_targets, state_.step));
  }
  if (state_.num_updates == 0 && health.num_skipped > 0) {
    const std::string scale = loss_scaler_ ? fmt::format(". The loss scale is now {}", loss_scaler_->scale()) : "";
    throw RunError(
        fmt::format("step {}", state_.step),
        fmt::format("all {} updates of the run were skipped, because loss or gradients were not finite{}. "
                    "The model did not change, and is not saved",
                    health.num_skipped, scale),
        loss_scaler_ ? "Use --precision bf16, a smaller --initial-scale-power or more steps" : remedy_of(settings_));
  }
  if (const int64_t count = health.skipped_in_a_row; count > 0) {
    const std::string updates = count == 1 ? "update of the run was" : fmt::format("{} updates of the run were", count);
    console_.note(
        fmt::format("warning: the last {} skipped, because loss or gradients were not finite. The model may be "
                    "unusable",
                    updates));
  }
  // The evaluation decides only if the losses of the steps alone look better: it sees what the last update did.
  std::optional<double> evaluated = evaluated_at_end();
  const LossWatch::Verdict verdict = loss_watch_.verdict_at_end(evaluated);
  if (loss_watch_.verdict_at_end() == verdict) evaluated.reset();
  if (verdict == LossWatch::Verdict::hopeless && settings_.stop_on_divergence) end_hopeless(evaluated);
  if (verdict < LossWatch::Verdict::diverges) return;
  console_.note(fmt::format("warning: the run ends with a loss that has diverged: {}. The model may be unusable. {}",
                            losses_of(loss_watch_, evaluated), remedy_of(settings_)));
}

// Ends the run if parameters are NaN or infinite. Call it before parameters are saved, so that no file with good
// parameters is replaced. Collective.
void Trainer::check_parameters() {
  const std::optional<int64_t> unit = engine_.find_non_finite_unit();
  if (!unit) return;
  end_diverged(
      fmt::format("step {}", state_.step),
      fmt::format("parameters of {} are NaN or infinite, and are not saved", engine_.model().unit(*unit).name()),
      remedy_of(settings_));
}

}  // namespace tessera
