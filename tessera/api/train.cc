#include <tessera/train.h>

#include <cmath>

#include <nlohmann/json.hpp>

#include "tessera/api/call.h"
#include "tessera/api/data_rows.h"
#include "tessera/api/options.h"
#include "tessera/api/own_loss.h"
#include "tessera/base/record.h"
#include "tessera/load/model_place.h"
#include "tessera/session/session.h"
#include "tessera/settings/verb_groups.h"
#include "tessera/train/trainer.h"

namespace tessera::v0 {

namespace {

StepMetrics step_metrics(const StepReport& report) {
  const StepResult& result = report.result;
  StepMetrics metrics;
  metrics.step = report.step;
  metrics.num_steps = report.num_steps;
  metrics.epoch = report.epoch;
  if (result.num_targets > 0) {
    metrics.loss = result.loss();
    metrics.gradient_norm = result.gradient_norm;
  }
  metrics.learning_rate = report.learning_rate;
  metrics.loss_scale = report.loss_scale;
  metrics.updated = !result.skipped;
  metrics.num_targets = result.num_targets;
  metrics.num_tokens = result.num_tokens;
  metrics.num_samples = result.num_sequences;
  metrics.runtime_s = report.runtime_s;
  return metrics;
}

Evaluation evaluation_of(const EvaluationReport& report) {
  Evaluation evaluation;
  evaluation.step = report.step;
  evaluation.epoch = report.epoch;
  evaluation.loss = report.loss.loss;
  evaluation.perplexity = std::exp(report.loss.loss);
  if (report.answers) evaluation.answers = {report.answers->exact_match, report.answers->f1};
  evaluation.num_samples = report.loss.num_samples;
  evaluation.runtime_s = report.loss.runtime_s;
  return evaluation;
}

Evaluation evaluation_of_row(const EpochRow& row) {
  Evaluation evaluation;
  evaluation.epoch = row.epoch;
  evaluation.loss = row.eval.loss.value();
  evaluation.perplexity = std::exp(evaluation.loss);
  if (row.eval.answers) evaluation.answers = {row.eval.answers->exact_match, row.eval.answers->f1};
  return evaluation;
}

TrainObserver observer_of(const Hooks& hooks) {
  TrainObserver observer;
  if (hooks.on_step) {
    observer.on_step = [&hooks](const StepReport& report) {
      switch (call_back(hooks.on_step, step_metrics(report))) {
        case Next::stop:
          return TrainObserver::Next::stop;
        case Next::finish:
          return TrainObserver::Next::finish;
        case Next::proceed:
          break;
      }
      return TrainObserver::Next::proceed;
    };
  }
  if (hooks.on_evaluation) {
    observer.on_evaluation = [&hooks](const EvaluationReport& report) {
      call_back(hooks.on_evaluation, evaluation_of(report));
    };
  }
  return observer;
}

// The options, with a name for the rows of the program in place of files.
Options with_rows(const Options& options, const Hooks& hooks) {
  Options all = options;
  if (hooks.rows) all.set("dataset", kGivenRows);
  if (hooks.eval_rows) all.set("eval_dataset", kGivenRows);
  return all;
}

TrainResult result_of(const Trainer& trainer, ExitCode code) {
  const TrainState& state = trainer.state();
  TrainResult result;
  result.finished = code == ExitCode::kDone;
  result.output_dir = trainer.folder().string();
  result.steps = state.step;
  if (state.loss_steps > 0) result.train_loss = state.total_loss / static_cast<double>(state.loss_steps);
  result.num_samples = state.num_samples;
  result.num_tokens = state.num_tokens;
  result.num_targets = state.num_targets;
  result.epoch = trainer.epochs();
  result.runtime_s = trainer.runtime();
  for (const EpochRow& row : state.rows) result.evaluations.push_back(evaluation_of_row(row));
  const Record& summary = trainer.final_summary();
  if (!result.finished || summary.is_null()) return result;
  result.model = summary.at("model").get<std::string>();
  result.summary_json = to_pretty_json(summary);
  return result;
}

}  // namespace

TrainResult train(const Options& options, const Hooks& hooks) {
  Messages messages(hooks.log);
  return guarded(messages, [&] {
    Console console = messages.console();
    const ResolvedSettings resolved =
        resolved_options(with_rows(options, hooks), kTrainVerb, "train", {"model", "dataset", "output_dir"}, console);
    const Settings& settings = resolved.settings;
    check_model_is_kept(settings);
    GivenRows given;
    if (hooks.rows) given.train = read_rows(hooks.rows, "rows", settings);
    if (hooks.eval_rows) given.eval = read_rows(hooks.eval_rows, "eval_rows", settings);
    const auto weights = starts_from_checkpoint(settings) ? Session::Weights::not_yet : Session::Weights::read_ahead;
    Session session(settings, nullptr, console, weights);
    const auto stop_asked = [&] {
      return hooks.stop.stop_requested() || (hooks.stop_requested && call_back(hooks.stop_requested));
    };
    Trainer trainer(
        session, resolved, [&] { return stop_asked() ? kStoppedByProgram : 0; }, std::move(given));
    trainer.track(tracker_options(trainer.resolved()));
    trainer.observe(observer_of(hooks));
    OwnLossScope loss(session, hooks.loss);
    return result_of(trainer, static_cast<ExitCode>(trainer.run()));
  });
}

}  // namespace tessera::v0
