// Evaluation: the loss over a data set, and exact match and F1 of greedily generated answers. Also continues lists of
// prompts, for `tessera generate`.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tessera/data/scoring.h"
#include "tessera/load/datasets.h"
#include "tessera/log/console.h"
#include "tessera/log/trainer_lines.h"

namespace tessera {

// The style of log lines that --log-format selects for an output.
LineStyle line_style(const Settings& settings, const Terminal& terminal);

struct LossEvaluation {
  double loss = 0;  // mean over all targets
  double runtime_s = 0;
  int64_t num_samples = 0, num_steps = 0;
};

// Called on all ranks before each step, which is one batch per rank. Returns true to stop. Must return the same value
// on all ranks.
using StopNow = std::function<bool()>;

// Evaluates every sample once, in order, with batches of `batch_size` samples per rank. Returns nothing if `stop`
// returns true. Collective.
std::optional<LossEvaluation> evaluate_loss(Engine& engine, Communicator& world, const Dataset& dataset,
                                            int64_t batch_size, Console& console, const StopNow& stop = {});

// Continues all prompts. In each step, every rank continues at most `batch_size` prompts. After each step, calls `take`
// on all ranks with the tokens that all ranks generated in this step, in the order of the prompts. `first` is the index
// of the step's first prompt. Rank 0 continues this prompt. In each step, sets options.first_number to the index of
// this rank's first prompt. The random numbers for a prompt therefore depend on its index, but not on the number of
// ranks or the batch size. Returns false if `stop` returned true. Collective.
using TakeTexts = std::function<void(int64_t first, const std::vector<std::vector<int32_t>>& texts)>;
bool generate_all(Engine& engine, Communicator& world, std::span<const std::vector<int32_t>> prompts,
                  int64_t batch_size, GenerationOptions options, const TakeTexts& take, const StopNow& stop = {});

struct AnswerEvaluation {
  AnswerMetrics metrics;  // means over all questions; questions that are too long for the model count as 0
  double runtime_s = 0;
  // One for each example of the data set. Empty if the generated answer says that the question has no answer.
  std::vector<std::string> predictions;
};

// Generates and scores an answer to every prompt of the data set, with batches of eval_batch_size prompts per rank.
// Uses the settings max_new_tokens, eval_batch_size, scoring and unanswerable_text. All ranks get the same result.
// Returns nothing if `stop` returns true. Collective.
std::optional<AnswerEvaluation> evaluate_answers(Engine& engine, Communicator& world, const Dataset& dataset,
                                                 const Tokenizer& tokenizer, const Settings& settings, Console& console,
                                                 const StopNow& stop = {});

// {id: answer}, the predictions in the format of SQuAD's own evaluation script. A row without an id gets its index
// (from 0) as the id. If several rows have the same id, the first one keeps it, and the script uses the answer of this
// row. The other rows get "id#2", "id#3", …, and the console prints a warning.
Record predictions_by_id(const std::vector<Example>& examples, const std::vector<std::string>& predictions,
                         Console& console);

}  // namespace tessera
