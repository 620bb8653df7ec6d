#include "tessera/report/trainer_lines.h"

namespace tessera {
namespace {

// speed_metrics() of transformers' trainer_utils.py.
void add_speed(Record& record, const std::string& split, double runtime_s, int64_t num_samples, int64_t num_steps) {
  record.set(split + "_runtime", round_decimals(runtime_s, 4));
  if (runtime_s == 0) return;
  record.set(split + "_samples_per_second", round_decimals(static_cast<double>(num_samples) / runtime_s, 3));
  record.set(split + "_steps_per_second", round_decimals(static_cast<double>(num_steps) / runtime_s, 3));
}

}  // namespace

Record trainer_record(const StepMetrics& metrics) {
  return {{"loss", round_decimals(metrics.loss, 4)},
          {"grad_norm", metrics.grad_norm},
          {"learning_rate", metrics.learning_rate},
          {"epoch", round_decimals(metrics.epoch, 2)}};
}

Record trainer_record(const EvalMetrics& metrics) {
  Record record{{"eval_loss", metrics.loss}};
  add_speed(record, "eval", metrics.runtime_s, metrics.num_samples, metrics.num_steps);
  return record.set("epoch", round_decimals(metrics.epoch, 2));
}

Record trainer_record(const TrainMetrics& metrics) {
  Record record;
  add_speed(record, "train", metrics.runtime_s, metrics.num_samples, metrics.num_steps);
  record.set("train_loss", metrics.mean_loss);
  return record.set("epoch", round_decimals(metrics.epoch, 2));
}

std::string trainer_line(const AnswerMetrics& metrics) {
  return "Evaluation Metrics: " + to_python({{"exact_match", metrics.exact_match}, {"f1", metrics.f1}});
}

}  // namespace tessera
