// The lines that users of the Hugging Face Trainer know and search for. A line is a Python dict, with the order of keys
// and the rounding of transformers 4 (Trainer.log, speed_metrics and ProgressCallback).
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "tessera/base/record.h"
#include "tessera/log/console.h"

namespace tessera {

struct StepMetrics {
  // Mean of the steps' losses since the previous line; shown to 4 decimals. Empty if no token had a loss.
  std::optional<double> loss;
  std::optional<double> grad_norm;  // before clipping; empty if no token of the step had a loss
  double learning_rate;             // of the step that has just finished
  double epoch;                     // such as 1.25; in all structs of this file, shown to 2 decimals
};

struct EvalMetrics {
  double loss;
  double runtime_s;  // shown to 4 decimals; rates are shown to 3 decimals, or omitted if runtime_s is 0
  int64_t num_samples;
  int64_t num_steps;
  double epoch;
};

struct TrainMetrics {
  double runtime_s;
  int64_t num_samples;  // over all epochs
  int64_t num_steps;    // optimizer steps
  // Mean over all steps with a finite loss; empty if no token had a loss.
  std::optional<double> mean_loss;
  double epoch;
};

struct AnswerMetrics {
  struct Group {
    double exact_match, f1;  // means over the questions of the group
    int64_t total;           // number of questions; above 0
  };
  double exact_match, f1;
  // The questions with and without an answer. Both are empty if every question has an answer.
  std::optional<Group> with_answer = {}, without_answer = {};
};

// {'loss': 4.895, 'grad_norm': 81.47, 'learning_rate': 1.08e-05, 'epoch': 4.0}; the keys of empty values
// are left out, as 'train_loss' in the record of TrainMetrics.
Record trainer_record(const StepMetrics& metrics);
// {'eval_loss': …, 'eval_runtime': …, 'eval_samples_per_second': …, 'eval_steps_per_second': …, 'epoch': 1.0}
Record trainer_record(const EvalMetrics& metrics);
// {'train_runtime': …, 'train_samples_per_second': …, 'train_steps_per_second': …, 'train_loss': …, 'epoch': …}
Record trainer_record(const TrainMetrics& metrics);

// {'exact_match': …, 'f1': …}, and the keys of SQuAD 2.0's official script for each group: HasAns_exact, HasAns_f1,
// HasAns_total, NoAns_exact, NoAns_f1 and NoAns_total. `suffix` is added to each key.
Record answer_record(const AnswerMetrics& metrics, const std::string& suffix = "");

// The values of trainer_record() that depend on the clock, without rounding: eval_runtime, eval_samples_per_second and
// eval_steps_per_second. For TrainMetrics, the prefix is train_ instead of eval_.
Record timing_record(const EvalMetrics& metrics);
Record timing_record(const TrainMetrics& metrics);

// The form of a record on one line, without a newline:
//   trainer  as the Trainer prints it, a Python dict. "Evaluation Metrics: " is before the dict of answers
//   rounded  the same for a terminal: losses and scores have at most 4 decimals, and the line of a step has at most
//            kTerminalColumns columns
//   json     the same record as JSON
enum class LineStyle { trainer, rounded, json };
constexpr int kTerminalColumns = 80;
std::string trainer_line(const StepMetrics& metrics, LineStyle style);
std::string trainer_line(const EvalMetrics& metrics, LineStyle style);
std::string trainer_line(const TrainMetrics& metrics, LineStyle style);
std::string trainer_line(const AnswerMetrics& metrics, LineStyle style);

}  // namespace tessera
