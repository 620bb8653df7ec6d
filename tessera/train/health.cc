#include "tessera/train/health.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "tessera/base/counted.h"

namespace tessera {

namespace {

std::string numbers_of(const StepResult& result) {
  const auto text = [](double x) { return std::isnan(x) ? "nan" : fmt::format("{}", x); };  // fmt may print "-nan"
  return fmt::format("the loss is {} and the norm of the gradients {}", text(result.loss()),
                     text(result.gradient_norm));
}

// Returns the advice for a run that diverges: make updates smaller, or use a wider type.
std::string remedy_of(const Settings& settings) {
  using P = Settings::Precision;
  const char* const wider = settings.precision == P::fp16   ? ", or use --precision bf16 or fp32"
                            : settings.precision == P::bf16 ? ", or use --precision fp32"
                                                            : "";
  return fmt::format("Lower --lr (now {}), give a longer warm-up (--warmup-steps) or a smaller --max-grad-norm{}",
                     settings.lr, wider);
}

// `evaluated`: the loss of an evaluation after the last step, if it decides.
std::string losses_of(const LossWatch& watch, std::optional<double> evaluated = std::nullopt) {
  const LossWatch::State& state = watch.state();
  return fmt::format("the loss {}is {:.6g}. The median of the last {} is {:.6g}, and the lowest such median was {:.6g}",
                     evaluated ? "of the last evaluation " : "", evaluated.value_or(state.recent.back()),
                     state.recent.size() == 1 ? "loss" : fmt::format("{} losses", state.recent.size()),
                     watch.smoothed(), state.lowest);
}

}  // namespace

Health::Health(const Settings& settings, int64_t vocab_size, Console& console, Hooks hooks)
    : settings_(settings), console_(console), hooks_(std::move(hooks)), losses_(vocab_size) {
  if (settings.precision == Settings::Precision::fp16) scaler_.emplace(settings.loss_scaling());
}

void Health::restore(const TrainHealth& state, const std::optional<LossScaleState>& loss_scale) {
  state_ = state;
  losses_.restore(state.losses);
  if (scaler_ && loss_scale) scaler_->restore(*loss_scale);
}

TrainHealth Health::state() const {
  TrainHealth state = state_;
  state.losses = losses_.state();
  return state;
}

std::optional<LossScaleState> Health::loss_scale_state() const {
  return scaler_ ? std::optional(scaler_->state()) : std::nullopt;
}

bool Health::is_in_doubt() const {
  return losses_.verdict() != LossWatch::Verdict::usual || state_.skipped_in_a_row > 0;
}

void Health::watch(int64_t step, const StepResult& result, double loss_scale, int64_t saved_step) {
  if (result.num_targets == 0) return note_no_targets(step);
  const bool is_finite = std::isfinite(result.loss());
  const Overflow overflow = scaler_ ? scaler_->update(!std::isfinite(result.gradient_norm)) : Overflow::none;
  const bool searches = overflow == Overflow::searched && is_finite;
  if (is_finite) watch_loss(step, result.loss());
  const bool is_usual = losses_.verdict() == LossWatch::Verdict::usual;
  if (is_usual && (!result.skipped || searches)) state_.sound_checkpoint = saved_step;
  if (!result.skipped) {
    state_.skipped_in_a_row = 0;
    return;
  }
  ++state_.num_skipped;
  if (!searches) ++state_.skipped_in_a_row;
  Record record{{"loss", result.loss()}, {"grad_norm", result.gradient_norm}};
  if (scaler_) record["loss_scale"] = loss_scale;
  record["in_a_row"] = searches ? 0 : state_.skipped_in_a_row;
  hooks_.log_skipped(record);
  if (!searches) return report_skipped(step, result, loss_scale, overflow);
  console_.note(fmt::format("Step {} skipped: gradients overflow at a loss scale of {}. The new loss scale is {} ({})",
                            step, loss_scale, scaler_->scale(), numbers_of(result)));
}

void Health::report_skipped(int64_t step, const StepResult& result, double loss_scale, Overflow overflow) {
  const std::string numbers = numbers_of(result);
  const int64_t most = settings_.max_skipped_updates;
  const std::string limit = most > 0 ? fmt::format(" (the run ends at {}: --max-skipped-updates)", most) : "";
  console_.note(
      fmt::format("warning: step {} skipped: {}. The parameters stay as they are. Skipped updates in a row: {}{}", step,
                  numbers, state_.skipped_in_a_row, limit));
  if (overflow == Overflow::exhausted) {
    end("fp16 loss scale",
        fmt::format("gradients overflow at the smallest scale, {}, in step {}: {}", loss_scale, step, numbers),
        remedy_of(settings_) + ", or lower --min-loss-scale");
  }
  if (most > 0 && state_.skipped_in_a_row >= most) {
    end(fmt::format("step {}", step),
        fmt::format("{} in a row skipped: {}", counted(state_.skipped_in_a_row, "update"), numbers),
        remedy_of(settings_));
  }
}

// Counts a step without a token that has a loss. Such a step says nothing about the model.
void Health::note_no_targets(int64_t step) {
  if (++state_.num_without_targets > 1) return;
  console_.note(
      fmt::format("warning: no token of step {} has a loss. Such a step updates nothing and counts in no mean. The "
                  "number of these steps is steps_without_targets in summary.json",
                  step));
}

// Warns if training diverges, once until the smoothed loss is at its lowest value again. Ends the run if it is hopeless
// (--stop-on-divergence).
void Health::watch_loss(int64_t step, double loss) {
  losses_.add(loss);
  bool& warned = state_.warned_of_loss;
  if (losses_.is_lowest()) warned = false;
  const LossWatch::Verdict verdict = losses_.verdict();
  if (verdict == LossWatch::Verdict::hopeless && settings_.stop_on_divergence) end_hopeless(step, std::nullopt);
  if (verdict < LossWatch::Verdict::diverges || std::exchange(warned, true)) return;
  console_.note(
      fmt::format("warning: step {}: training diverges: {}. {}", step, losses_of(losses_), remedy_of(settings_)));
}

void Health::end_hopeless(int64_t step, std::optional<double> evaluated) {
  end(fmt::format("step {}", step),
      fmt::format("training has diverged: {} (--no-stop-on-divergence continues in spite of this)",
                  losses_of(losses_, evaluated)),
      remedy_of(settings_));
}

void Health::end(const std::string& where, const std::string& what, const std::string& remedy) {
  throw RunError(where, what, fmt::format("{}. {}", remedy, hooks_.begin_again(state_.sound_checkpoint)));
}

void Health::check_end(int64_t step, int64_t num_updates, std::optional<double> evaluated) {
  if (state_.num_without_targets > 0) {
    console_.note(
        fmt::format("warning: in {} of {} steps, no token has a loss. These steps updated nothing. Increase "
                    "--max-length or --batch-size, or give --truncation context to keep the answers",
                    state_.num_without_targets, step));
  }
  if (num_updates == 0 && state_.num_skipped > 0) {
    const std::string scale = scaler_ ? fmt::format(". The loss scale is now {}", scaler_->scale()) : "";
    throw RunError(
        fmt::format("step {}", step),
        fmt::format("all {} updates of the run were skipped, because loss or gradients were not finite{}. "
                    "The model did not change, and is not saved",
                    state_.num_skipped, scale),
        scaler_ ? "Use --precision bf16, a smaller --initial-scale-power or more steps" : remedy_of(settings_));
  }
  if (const int64_t count = state_.skipped_in_a_row; count > 0) {
    const std::string updates = count == 1 ? "update of the run was" : fmt::format("{} updates of the run were", count);
    console_.note(
        fmt::format("warning: the last {} skipped, because loss or gradients were not finite. The model may be "
                    "unusable",
                    updates));
  }
  // The evaluation decides only if the losses of the steps alone look better: it sees what the last update did.
  const LossWatch::Verdict verdict = losses_.verdict_at_end(evaluated);
  if (losses_.verdict_at_end() == verdict) evaluated.reset();
  if (verdict == LossWatch::Verdict::hopeless && settings_.stop_on_divergence) end_hopeless(step, evaluated);
  if (verdict < LossWatch::Verdict::diverges) return;
  console_.note(fmt::format("warning: the run ends with a loss that has diverged: {}. The model may be unusable. {}",
                            losses_of(losses_, evaluated), remedy_of(settings_)));
}

void Health::check_parameters(int64_t step, Engine& engine) {
  const std::optional<int64_t> unit = engine.states().find_non_finite_unit();
  if (!unit) return;
  end(fmt::format("step {}", step),
      fmt::format("parameters of {} are NaN or infinite, and are not saved", engine.model().unit(*unit).name()),
      remedy_of(settings_));
}

}  // namespace tessera
