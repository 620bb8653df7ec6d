// Evaluation: the loss over a data set, and exact match and F1 of greedily generated answers.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tessera/data/scoring.h"
#include "tessera/load/datasets.h"
#include "tessera/report/console.h"
#include "tessera/report/trainer_lines.h"

namespace tessera {

struct LossEvaluation {
  double loss = 0;  // mean over all targets
  double runtime_s = 0;
  int64_t num_samples = 0, num_steps = 0;
};

// Asked between batches, on all ranks: whether to give up, which the ranks must agree on.
using StopNow = std::function<bool()>;

// Every sample once over all ranks, `batch_size` a rank at a time, in order. Nothing when stopped.
std::optional<LossEvaluation> evaluate_loss(Engine& engine, Communicator& world, const std::vector<Sample>& samples,
                                            int64_t batch_size, Console& console, const StopNow& stop = {});

struct AnswerEvaluation {
  AnswerMetrics metrics;  // means over the examples, and the questions that are too long to ask, which count as 0
  double runtime_s = 0;
  std::vector<std::string> predictions;  // [examples]
};

// Answers every prompt of the data set, `batch_size` a rank at a time, and scores them, with the same outcome on all
// ranks. Nothing when stopped.
std::optional<AnswerEvaluation> evaluate_answers(Engine& engine, Communicator& world, const Dataset& dataset,
                                                 const Tokenizer& tokenizer, int64_t batch_size, int64_t max_new_tokens,
                                                 Scoring scoring, Console& console, const StopNow& stop = {});

// {id: answer}, the predictions that SQuAD's own evaluation script reads. A row without an id has its number in the
// data set as its id. No answer is lost where ids repeat: the first keeps the id, which is the one that the script
// finds, the others get "id#2", "id#3", …, and a note tells so.
Record predictions_by_id(const std::vector<Example>& examples, const std::vector<std::string>& predictions,
                         Console& console);

}  // namespace tessera
