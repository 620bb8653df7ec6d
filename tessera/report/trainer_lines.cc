#include "tessera/report/trainer_lines.h"

namespace tessera {
namespace {

// speed_metrics() of transformers' trainer_utils.py, before rounding.
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

}  // namespace

Record timing_record(const EvalMetrics& metrics) {
  return speed_of("eval", metrics.runtime_s, metrics.num_samples, metrics.num_steps);
}

Record timing_record(const TrainMetrics& metrics) {
  return speed_of("train", metrics.runtime_s, metrics.num_samples, metrics.num_steps);
}

Record trainer_record(const StepMetrics& metrics) {
  return {{"loss", round_decimals(metrics.loss, 4)},
          {"grad_norm", metrics.grad_norm},
          {"learning_rate", metrics.learning_rate},
          {"epoch", round_decimals(metrics.epoch, 2)}};
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
  record["train_loss"] = metrics.mean_loss;
  record["epoch"] = round_decimals(metrics.epoch, 2);
  return record;
}

std::string trainer_line(const AnswerMetrics& metrics) {
  return "Evaluation Metrics: " + to_python({{"exact_match", metrics.exact_match}, {"f1", metrics.f1}});
}

}  // namespace tessera
