// The evaluations of a training run.
#include <cmath>

#include "tessera/train/trainer.h"

namespace tessera {

// Returns nullopt if a signal stops the ranks during the evaluation. Collective.
std::optional<EvalOutcome> Trainer::evaluate() {
  session_.worker().enter(Phase::evaluation);
  EvalOutcome outcome;
  const auto stop = [&] { return stop_asked(); };
  const auto loss =
      evaluate_loss(session_.engine(), session_.world(), *data_.eval, settings_.eval_batch_size, console_, stop);
  if (!loss) return std::nullopt;
  outcome.loss = loss->loss;
  const EvalMetrics metrics{loss->loss, loss->runtime_s, loss->num_samples, loss->num_steps, epoch_now()};
  state_.eval_timing = timing_record(metrics);
  Record values{{"eval_loss", loss->loss}};
  std::optional<AnswerEvaluation> answers;
  if (settings_.eval_generation) {
    answers = evaluate_answers(session_.engine(), session_.world(), *data_.eval, session_.tokenizer(), settings_,
                               console_, stop);
    if (!answers) return std::nullopt;
    outcome.answers = answers->metrics;
    values.update(answer_record(answers->metrics));
    state_.eval_timing["answers_runtime"] = answers->runtime_s;
  }
  recorder_->say(trainer_line(metrics, recorder_->line_style()));
  if (answers) recorder_->say(trainer_line(answers->metrics, recorder_->line_style()));
  append("eval", values, state_.eval_timing);
  if (observer_.on_evaluation) observer_.on_evaluation({state_.step, epoch_now(), metrics, outcome.answers});
  return outcome;
}

// Returns false if a signal stops the ranks during the evaluation. Collective.
bool Trainer::evaluate_after_step() {
  progress_->pause();
  const std::optional<EvalOutcome> outcome = evaluate();
  if (!outcome) return false;
  state_.evaluated_step = state_.step;
  state_.rows.push_back({epoch_now(), state_.row_loss / static_cast<double>(state_.row_steps), *outcome});
  state_.row_loss = 0;
  state_.row_steps = 0;
  if (improves(*outcome)) state_.best_step = state_.step;
  progress_->resume();
  return true;
}

bool Trainer::improves(const EvalOutcome& outcome) {
  if (!std::isfinite(outcome.loss.value())) return false;  // even if exact match or F1 is better
  const double metric = metric_of(outcome, settings_.metric_for_best_model);
  if (state_.best_metric && metric <= *state_.best_metric) return false;
  state_.best_metric = metric;
  return true;
}

// The loss of the evaluation after the last step. Empty if there was none, if this loss is not finite, or if it is not
// above the loss before the first step (--eval-before).
std::optional<double> Trainer::evaluated_at_end() const {
  if (state_.rows.empty() || state_.evaluated_step != state_.step) return std::nullopt;
  const double loss = state_.rows.back().eval.loss.value();
  return std::isfinite(loss) && !(loss <= state_.before.loss.value_or(-1)) ? std::optional(loss) : std::nullopt;
}

}  // namespace tessera
