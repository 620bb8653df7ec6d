// The results of a training run: summary.json and the table at the end.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>

#include "tessera/base/instruction_sets.h"
#include "tessera/base/text.h"
#include "tessera/comm/communication_variables.h"
#include "tessera/load/data_report.h"
#include "tessera/log/table.h"
#include "tessera/settings/setting.h"
#include "tessera/train/gpu_record.h"
#include "tessera/train/machine_record.h"
#include "tessera/train/trainer.h"

namespace tessera {

namespace fs = std::filesystem;

double metric_of(const EvalOutcome& outcome, Settings::Metric metric) {
  switch (metric) {
    case Settings::Metric::eval_loss:
      return -outcome.loss.value();
    case Settings::Metric::exact_match:
      return outcome.answers.value().exact_match;
    case Settings::Metric::f1:
      return outcome.answers.value().f1;
  }
  return 0;
}

Record Trainer::summary(const TrainMetrics& metrics, const Record& gpu) {
  const auto best_row = [&]() -> const EpochRow* {
    if (state_.rows.empty()) return nullptr;
    if (!settings_.load_best_model_at_end || !state_.best_metric) return &state_.rows.back();
    const auto is_best = [&](const EpochRow& row) {
      return std::isfinite(row.eval.loss.value()) &&
             metric_of(row.eval, settings_.metric_for_best_model) == *state_.best_metric;
    };
    return &*std::find_if(state_.rows.begin(), state_.rows.end(), is_best);
  }();
  const auto put = [](Record& record, const EvalOutcome& outcome, const std::string& suffix) {
    if (outcome.answers) record.update(answer_record(*outcome.answers, suffix));
    if (outcome.loss) record["eval_loss" + suffix] = *outcome.loss;
  };
  Record record{{"schema", 1}, {"model", (folder_->path() / "model").string()}};
  record["version"] = TESSERA_VERSION;
  if (!settings_.experiment.empty()) record["experiment"] = settings_.experiment;
  if (!state_.origin.empty()) record["resumed_from"] = state_.origin;
  if (best_row) put(record, best_row->eval, "");
  put(record, state_.before, "_before");
  record["train_loss"] = metrics.mean_loss ? Record(*metrics.mean_loss) : Record();
  record["epoch"] = epoch_now();
  record["steps"] = state_.step;
  record["best_step"] = state_.best_step;
  record["num_parameters"] = session_.engine().model().num_parameters();
  record["num_trainable_parameters"] = session_.engine().model().num_trainable_parameters();
  record["num_samples"] = state_.num_samples;
  record["num_tokens"] = state_.num_tokens;
  record["num_targets"] = state_.num_targets;
  if (const auto& fill = calendar_->epochs().fill()) record["batch_tokens_used"] = fill->share;
  record["train_data"] = data_record(data_.train.use);
  if (data_.eval) record["eval_data"] = data_record(data_.eval->use);
  record.update(timing_record(metrics));
  record.update(state_.eval_timing);
  const auto rate = [](int64_t n, double s) { return s > 0 ? static_cast<double>(n) / s : 0.0; };
  const bool steady = state_.steady_s > 0;  // false: the run made at most one step after each of its starts
  record["train_samples_per_second_steady"] =
      steady ? rate(state_.steady_samples, state_.steady_s) : rate(state_.num_samples, metrics.runtime_s);
  record["train_tokens_per_second_steady"] =
      steady ? rate(state_.steady_tokens, state_.steady_s) : rate(state_.num_tokens, metrics.runtime_s);
  record["world_size"] = session_.worker().num_ranks();
  record["strategy"] = row_of(session_.engine().shard_plan().options().strategy).name;
  record["fused_micro_batches"] = fused_;
  record["threads_per_rank"] = session_.pool().num_threads();
  record["bytes_sent"] = bytes_sent_;
  if (health_->has_loss_scale()) record["loss_scale"] = health_->loss_scale();
  record["skipped_steps"] = state_.health.num_skipped;
  record["steps_without_targets"] = state_.health.num_without_targets;
  const bool on_gpu = session_.worker().device().kind() == DeviceKind::cuda;
  record["device"] = on_gpu ? "cuda" : "cpu";
  record["instruction_set"] = name_of_chosen_instruction_set();
  record["precision"] = std::get<std::string>(find_setting("precision")->get(settings_));
  record["machine"] = machine_record(session_.world(), on_gpu);
  measurements_->add_to(record, gpu);
  if (planned_) {
    const Plan& plan = planned_->plan;
    record["planned"] = record_of(*planned_);
    record["planned_ledger_peak_bytes"] = peaks_of(plan.device);
    record["planned_peak_bytes"] = plan.peak_bytes();
    record["planned_step_bytes_sent"] = plan.step_bytes_sent;
  }
  std::vector<Record> rows;
  for (const EpochRow& row : state_.rows) {
    Record value{{"epoch", row.epoch}, {"train_loss", row.train_loss}};
    put(value, row.eval, "");
    rows.push_back(value);
  }
  record["epochs"] = rows;
  record["environment"] = Record::object();
  for (const auto& [name, value] : communication_variables(environment_of_process())) {
    record["environment"][name] = value;
  }
  if (!preflight_.is_null()) record["preflight"] = preflight_;
  return record;
}

void Trainer::warn_of_slow_steps(const Record& gpu) {
  const MeasuredSteps& steps = measurements_->steps();
  if (!planned_ || !planned_->has_measured_time() || !are_slow(*planned_->time, steps)) return;
  console_.note(warning_of_slow_steps(*planned_->time, steps.median(), measurements_->surroundings(gpu)));
}

void Trainer::print_table(const Record& summary) const {
  const bool as_json = settings_.log_format == Settings::LogFormat::json;  // standard output has only JSON then
  const auto print = [&](const std::string& text) { as_json ? console_.note(text) : console_.print(text); };
  const auto number = [](const std::optional<double>& value, int decimals) {
    return value && !std::isnan(*value) ? fmt::format("{:.{}f}", *value, decimals) : std::string("-");
  };
  // Without scores of answers, the table shows the perplexity instead.
  Table table({{"epoch", Align::kRight},
               {"train loss", Align::kRight},
               {"eval loss", Align::kRight},
               {"perplexity", Align::kRight},
               {"exact match", Align::kRight},
               {"F1", Align::kRight}});
  const auto add = [&](const std::string& epoch, std::optional<double> loss, const EvalOutcome& e) {
    const auto score = [&](double AnswerMetrics::*value) {
      return number(e.answers ? std::optional(*e.answers.*value) : std::nullopt, 3);
    };
    const std::string perplexity = e.loss && !settings_.eval_generation ? format_perplexity(*e.loss) : "-";
    table.row({epoch, number(loss, 4), number(e.loss, 4), perplexity, score(&AnswerMetrics::exact_match),
               score(&AnswerMetrics::f1)});
  };
  if (state_.evaluated_before) add("before", std::nullopt, state_.before);
  for (const EpochRow& row : state_.rows) add(fmt::format("{:.2f}", row.epoch), row.train_loss, row.eval);
  if (state_.evaluated_before || !state_.rows.empty()) {
    print(table.remove_empty_columns().render(as_json ? console_.err_terminal() : console_.out_terminal()));
  }
  print(fmt::format("speed   {} tokens/s {}", format_rate(summary.at("train_tokens_per_second_steady").get<double>()),
                    state_.steady_s > 0 ? "in steps, without evaluations and checkpoints" : "of the complete run"));
  print(fmt::format("memory  {} at most", format_bytes(summary.at("peak_memory_bytes").get<int64_t>())));
  if (summary.contains("gpu")) print("GPU     " + gpu_line(summary["gpu"]));
  print(fmt::format("model   {}", summary.at("model").get<std::string>()));
}

}  // namespace tessera
