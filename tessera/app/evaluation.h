// Evaluation: the loss over a data set, and exact match and F1 of greedily generated answers.
#pragma once

#include <string>
#include <vector>

#include "tessera/app/datasets.h"
#include "tessera/data/scoring.h"
#include "tessera/report/console.h"
#include "tessera/report/trainer_lines.h"

namespace tessera {

struct LossEvaluation {
  double loss = 0;  // mean over all targets
  double runtime_s = 0;
  int64_t num_samples = 0, num_steps = 0;
};

// Every sample once, `batch_size` at a time, in order.
LossEvaluation evaluate_loss(Engine& engine, const std::vector<Sample>& samples, int64_t batch_size, Console& console);

struct AnswerEvaluation {
  AnswerMetrics metrics;  // means over the examples, in [0, 1]
  double runtime_s = 0;
  std::vector<std::string> predictions;  // [examples]
};

// Answers every prompt of the data set, `batch_size` at a time, and scores them.
AnswerEvaluation evaluate_answers(Engine& engine, const Dataset& dataset, const Tokenizer& tokenizer,
                                  int64_t batch_size, int64_t max_new_tokens, Scoring scoring, Console& console);

// {id: answer}, the predictions that SQuAD's own evaluation script reads. A row without an id has its number in the
// data set as its id. No answer is lost where ids repeat: the first keeps the id, which is the one that the script
// finds, the others get "id#2", "id#3", …, and a note tells so.
Record predictions_by_id(const std::vector<Example>& examples, const std::vector<std::string>& predictions,
                         Console& console);

}  // namespace tessera
