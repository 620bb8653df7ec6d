#include "tessera/log/trainer_lines.h"

#include <fmt/format.h>

#include <cmath>

namespace tessera {
namespace {

// Returns what speed_metrics() in trainer_utils.py of transformers returns, but without rounding.
Record speed_of(const std::string& split, double runtime_s, int64_t num_samples, int64_t num_steps) {
  Record record{{split + "_runtime", runtime_s}};
  if (runtime_s == 0) return record;
  record[split + "_samples_per_second"] = static_cast<double>(num_samples) / runtime_s;
  record[split + "_steps_per_second"] = static_cast<double>(num_steps) / runtime_s;
  return record;
}

void add_rounded(Record& record, const Record& speed) {
  for (const auto& [key, value] : speed.items()) {
    record[key] = round_decimals(value.get<double>(), key.ends_with("_runtime") ? 4 : 3);
  }
}

// A float as in a Python dict, with at most `digits` significant digits: "4.0", "1.235e+15", "nan".
std::string digits_of(double value, int digits) {
  if (std::isnan(value)) return "nan";  // fmt would print the sign of NaN
  std::string text = fmt::format("{:.{}g}", value, digits);
  const bool is_float = text.find_first_of(".en") != text.npos;
  return is_float ? text : text + ".0";
}

std::string line_of(const Record& record, LineStyle style) {
  return style == LineStyle::json ? to_json(record) : to_python(record);
}

}  // namespace

Record timing_record(const EvalMetrics& metrics) {
  return speed_of("eval", metrics.runtime_s, metrics.num_samples, metrics.num_steps);
}

Record timing_record(const TrainMetrics& metrics) {
  return speed_of("train", metrics.runtime_s, metrics.num_samples, metrics.num_steps);
}

Record trainer_record(const StepMetrics& metrics) {
  Record record;
  if (metrics.loss) record["loss"] = round_decimals(*metrics.loss, 4);
  if (metrics.grad_norm) record["grad_norm"] = *metrics.grad_norm;
  record["learning_rate"] = metrics.learning_rate;
  record["epoch"] = round_decimals(metrics.epoch, 2);
  return record;
}

Record trainer_record(const EvalMetrics& metrics) {
  Record record{{"eval_loss", metrics.loss}};
  add_rounded(record, timing_record(metrics));
  record["epoch"] = round_decimals(metrics.epoch, 2);
  return record;
}

Record trainer_record(const TrainMetrics& metrics) {
  Record record;
  add_rounded(record, timing_record(metrics));
  if (metrics.mean_loss) record["train_loss"] = *metrics.mean_loss;
  record["epoch"] = round_decimals(metrics.epoch, 2);
  return record;
}

Record answer_record(const AnswerMetrics& metrics, const std::string& suffix) {
  Record record{{"exact_match" + suffix, metrics.exact_match}, {"f1" + suffix, metrics.f1}};
  const auto add = [&](const std::string& name, const std::optional<AnswerMetrics::Group>& group) {
    if (!group) return;
    record[name + "_exact" + suffix] = group->exact_match;
    record[name + "_f1" + suffix] = group->f1;
    record[name + "_total" + suffix] = group->total;
  };
  add("HasAns", metrics.with_answer);
  add("NoAns", metrics.without_answer);
  return record;
}

std::string trainer_line(const StepMetrics& metrics, LineStyle style) {
  if (style != LineStyle::rounded) return line_of(trainer_record(metrics), style);
  // Each entry: the significant digits of loss, gradient norm, learning rate and epoch. The first entry whose line fits
  // into kTerminalColumns is used. The last entry always fits.
  constexpr int kDigits[][4] = {{5, 4, 4, 7}, {5, 3, 4, 7}, {5, 3, 3, 7}, {4, 3, 3, 7}, {4, 2, 3, 7},
                                {3, 2, 3, 7}, {3, 2, 2, 6}, {2, 1, 1, 6}, {1, 1, 1, 1}};
  std::string line;
  for (const auto& [loss, norm, rate, epoch] : kDigits) {
    line = "{";
    if (metrics.loss) line += fmt::format("'loss': {}, ", digits_of(round_decimals(*metrics.loss, 4), loss));
    if (metrics.grad_norm) line += fmt::format("'grad_norm': {}, ", digits_of(*metrics.grad_norm, norm));
    line += fmt::format("'learning_rate': {}, 'epoch': {}}}", digits_of(metrics.learning_rate, rate),
                        digits_of(round_decimals(metrics.epoch, 2), epoch));
    if (line.size() <= static_cast<size_t>(kTerminalColumns)) break;
  }
  return line;
}

std::string trainer_line(const EvalMetrics& metrics, LineStyle style) {
  EvalMetrics shown = metrics;
  if (style == LineStyle::rounded) shown.loss = round_decimals(metrics.loss, 4);
  return line_of(trainer_record(shown), style);
}

std::string trainer_line(const TrainMetrics& metrics, LineStyle style) {
  TrainMetrics shown = metrics;
  if (style == LineStyle::rounded && metrics.mean_loss) shown.mean_loss = round_decimals(*metrics.mean_loss, 4);
  return line_of(trainer_record(shown), style);
}

std::string trainer_line(const AnswerMetrics& metrics, LineStyle style) {
  Record shown = answer_record(metrics);
  if (style == LineStyle::rounded) {
    for (auto& [key, value] : shown.items()) {
      if (value.is_number_float()) value = round_decimals(value.get<double>(), 4);
    }
  }
  return (style == LineStyle::json ? "" : "Evaluation Metrics: ") + line_of(shown, style);
}

}  // namespace tessera
