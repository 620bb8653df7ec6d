#include "tessera/app/evaluation.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <unordered_map>
#include <unordered_set>

#include "tessera/report/progress.h"

namespace tessera {
namespace {

std::string trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1);
}

}  // namespace

LossEvaluation evaluate_loss(Engine& engine, const std::vector<Sample>& samples, int64_t batch_size, Console& console) {
  const double begin_s = steady_seconds();
  const auto num_samples = static_cast<int64_t>(samples.size());
  LossEvaluation result{0, 0, num_samples, (num_samples + batch_size - 1) / batch_size};
  Progress progress(console, {.description = "Evaluating", .total_steps = result.num_steps});
  LossSum sum;
  std::vector<int64_t> indices;
  for (int64_t step = 0; step < result.num_steps; ++step) {
    const int64_t first = step * batch_size;
    indices.resize(static_cast<size_t>(std::min(batch_size, num_samples - first)));
    std::iota(indices.begin(), indices.end(), first);
    const LossSum batch = engine.evaluate(pack(samples, indices));
    sum.loss_sum += batch.loss_sum;
    sum.num_targets += batch.num_targets;
    progress.update(step + 1, static_cast<int64_t>(indices.size()));
  }
  result.loss = sum.loss_sum / static_cast<double>(sum.num_targets);
  result.runtime_s = steady_seconds() - begin_s;
  return result;
}

AnswerEvaluation evaluate_answers(Engine& engine, const Dataset& dataset, const Tokenizer& tokenizer,
                                  int64_t batch_size, int64_t max_new_tokens, Scoring scoring, Console& console) {
  const double begin_s = steady_seconds();
  const auto num_examples = static_cast<int64_t>(dataset.examples.size());
  const int64_t num_steps = (num_examples + batch_size - 1) / batch_size;
  Progress progress(console, {.description = "Answering", .total_steps = num_steps, .unit = "questions"});
  AnswerEvaluation result;
  const int32_t eos_id = engine.model().config().eos_token_id;
  for (int64_t step = 0; step < num_steps; ++step) {
    const int64_t first = step * batch_size, count = std::min(batch_size, num_examples - first);
    const auto prompts = std::span(dataset.prompts).subspan(static_cast<size_t>(first), static_cast<size_t>(count));
    for (const auto& ids : engine.generate(prompts, max_new_tokens, eos_id)) {
      result.predictions.push_back(trimmed(tokenizer.decode(ids, true)));
    }
    progress.update(step + 1, count);
  }
  double exact = 0, f1_sum = 0;
  for (size_t i = 0; i < dataset.examples.size(); ++i) {
    exact += exact_match(result.predictions[i], dataset.examples[i].answers, scoring);
    f1_sum += f1(result.predictions[i], dataset.examples[i].answers, scoring);
  }
  result.metrics = {exact / static_cast<double>(num_examples), f1_sum / static_cast<double>(num_examples)};
  result.runtime_s = steady_seconds() - begin_s;
  return result;
}

Record predictions_by_id(const std::vector<Example>& examples, const std::vector<std::string>& predictions,
                         Console& console) {
  TESSERA_ASSERT(examples.size() == predictions.size());
  std::unordered_set<std::string> ids, used;
  for (const Example& example : examples) ids.insert(example.id);
  std::unordered_map<std::string, int64_t> occurrences;
  int64_t num_repeated = 0;
  Record record;
  for (size_t i = 0; i < examples.size(); ++i) {
    const bool has_id = !examples[i].id.empty();
    const std::string id = has_id ? examples[i].id : std::to_string(i);
    const bool is_repeated = has_id && used.contains(id);
    num_repeated += is_repeated;
    std::string key = id;
    if (is_repeated || (!has_id && ids.contains(id))) {
      int64_t& n = occurrences.try_emplace(id, 1).first->second;
      do key = fmt::format("{}#{}", id, ++n);
      while (ids.contains(key) || used.contains(key));
    }
    used.insert(key);
    record.append(std::move(key), predictions[i]);
  }
  if (num_repeated > 0) {
    console.note(
        fmt::format("warning: {} of {} examples have an id that an earlier one has: their predictions are "
                    "stored under \"id#2\" and so on",
                    num_repeated, examples.size()));
  }
  return record;
}

}  // namespace tessera
