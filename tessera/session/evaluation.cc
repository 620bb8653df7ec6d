#include "tessera/session/evaluation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <unordered_map>
#include <unordered_set>

#include "tessera/base/clock.h"
#include "tessera/base/math.h"
#include "tessera/base/text.h"
#include "tessera/log/progress.h"

namespace tessera {
namespace {

// This rank's part of the items [first, min(first + batch_size · ranks, num_items)).
ElemRange part_of_rank(const Communicator& world, int64_t first, int64_t batch_size, int64_t num_items) {
  const int64_t size = std::min(batch_size * world.size(), num_items - first);
  return {first + size * world.rank() / world.size(), first + size * (world.rank() + 1) / world.size()};
}

// The token lists of all ranks, in the order of ranks. Collective.
std::vector<std::vector<int32_t>> gather_tokens(Communicator& world, const std::vector<std::vector<int32_t>>& own) {
  std::string text;  // for each list: its length, then its elements; 4 bytes per number
  const auto put = [&](const void* data, size_t bytes) { text.append(static_cast<const char*>(data), bytes); };
  for (const auto& ids : own) {
    const auto length = static_cast<uint32_t>(ids.size());
    put(&length, sizeof length);
    put(ids.data(), ids.size() * sizeof(int32_t));
  }
  std::vector<std::vector<int32_t>> all;
  for (const std::string& part : world.all_gather_text(text, "answers")) {
    for (size_t at = 0; at < part.size();) {
      uint32_t length = 0;
      std::memcpy(&length, part.data() + at, sizeof length);
      at += sizeof length;
      auto& ids = all.emplace_back(length);
      if (length > 0) std::memcpy(ids.data(), part.data() + at, length * sizeof(int32_t));
      at += length * sizeof(int32_t);
    }
  }
  return all;
}

// The answers that count as right. Empty if the question has no answer.
std::vector<std::string> references_of(const Example& example) {
  if (const Completion* row = example.completion()) return {row->completion};
  if (const Conversation* row = example.conversation()) return {answer_of(*row)};
  return example.question()->answers;
}

// The sums of the scores of some questions.
struct ScoreSum {
  double exact_match = 0, f1 = 0;
  int64_t total = 0;

  void add(double exact, double harmonic) {
    exact_match += exact;
    f1 += harmonic;
    ++total;
  }
  AnswerMetrics::Group means() const {
    const auto count = static_cast<double>(total);
    return {exact_match / count, f1 / count, total};
  }
};

// Scores the predictions. Replaces each prediction that says that the question has no answer with an empty text.
// Scoring::official scores the empty text. Scoring::workshop compares texts: for a question without an answer, the
// reference is the text that the model learns.
AnswerMetrics score_answers(const Dataset& dataset, const Settings& settings, std::vector<std::string>& predictions) {
  const std::vector<std::string> learned{settings.unanswerable_text};
  ScoreSum all, with_answer, without_answer;
  for (size_t i = 0; i < dataset.examples.size(); ++i) {
    std::string& prediction = predictions[i];
    const std::string generated = prediction;
    if (says_no_answer(prediction, settings.unanswerable_text)) prediction.clear();
    const Example& example = dataset.examples[i];
    const bool has_answer = !example.is_unanswerable();
    const bool by_text = settings.scoring == Scoring::workshop;
    const std::vector<std::string> references = by_text && !has_answer ? learned : references_of(example);
    const std::string& scored = by_text ? generated : prediction;
    const double exact = exact_match(scored, references, settings.scoring);
    const double harmonic = f1(scored, references, settings.scoring);
    all.add(exact, harmonic);
    (has_answer ? with_answer : without_answer).add(exact, harmonic);
  }
  // A question that is too long for the model gets no answer. It scores 0, like a question without a prediction in the
  // official script of SQuAD v1.1.
  all.total += dataset.use.rows_too_long;
  with_answer.total += dataset.use.rows_too_long - dataset.num_too_long_without_answer;
  without_answer.total += dataset.num_too_long_without_answer;
  AnswerMetrics metrics{all.means().exact_match, all.means().f1};
  if (without_answer.total == 0) return metrics;
  if (with_answer.total > 0) metrics.with_answer = with_answer.means();
  metrics.without_answer = without_answer.means();
  return metrics;
}

}  // namespace

LineStyle line_style(const Settings& settings, const Terminal& terminal) {
  if (settings.log_format == Settings::LogFormat::json) return LineStyle::json;
  const bool rounds = settings.log_format == Settings::LogFormat::automatic && terminal.interactive;
  return rounds ? LineStyle::rounded : LineStyle::trainer;
}

std::optional<LossEvaluation> evaluate_loss(Engine& engine, Communicator& world, const Dataset& dataset,
                                            int64_t batch_size, Console& console, const StopNow& stop) {
  const Samples& samples = dataset.samples;
  const double begin_s = steady_seconds();
  const int64_t num_samples = samples.size();
  const int64_t at_once = batch_size * world.size();
  LossEvaluation result{0, 0, num_samples, ceil_divide(num_samples, at_once)};
  Progress progress(console, {.description = "Evaluating", .total_steps = result.num_steps});
  double loss_sum = 0, num_targets = 0;
  std::vector<int64_t> indices;
  for (int64_t step = 0; step < result.num_steps; ++step) {
    if (stop && stop()) return std::nullopt;
    const ElemRange part = part_of_rank(world, step * at_once, batch_size, num_samples);
    indices.resize(static_cast<size_t>(part.size()));
    std::iota(indices.begin(), indices.end(), part.begin);
    const LossSum batch = engine.evaluate(batch_of(dataset, indices));
    loss_sum += batch.loss_sum;
    num_targets += static_cast<double>(batch.num_targets);
    progress.update(step + 1, std::min(at_once, num_samples - step * at_once));
  }
  const auto sums = world.sum({loss_sum, num_targets}, "the evaluation's loss");
  result.loss = sums[0] / sums[1];
  if (!std::isfinite(result.loss)) {
    console.note(fmt::format("warning: the evaluation's loss is {}. The model computes NaN or infinity from the data",
                             std::isnan(result.loss) ? "nan" : "infinite"));
  }
  result.runtime_s = steady_seconds() - begin_s;
  return result;
}

bool generate_all(Engine& engine, Communicator& world, std::span<const std::vector<int32_t>> prompts,
                  int64_t batch_size, GenerationOptions options, const TakeTexts& take, const StopNow& stop) {
  const int64_t count = std::ssize(prompts), at_once = batch_size * world.size();
  for (int64_t first = 0; first < count; first += at_once) {
    if (stop && stop()) return false;
    // Divides the prompts so that rank 0 always gets the first prompt, because only rank 0 prints tokens immediately.
    const int64_t size = std::min(at_once, count - first), ranks = world.size();
    const auto begin_of = [&](int64_t rank) { return first + ceil_divide(size * rank, ranks); };
    const ElemRange part{begin_of(world.rank()), begin_of(world.rank() + 1)};
    options.first_number = part.begin;
    const auto own = prompts.subspan(static_cast<size_t>(part.begin), static_cast<size_t>(part.size()));
    take(first, gather_tokens(world, engine.generate(own, options)));
  }
  return true;
}

std::optional<AnswerEvaluation> evaluate_answers(Engine& engine, Communicator& world, const Dataset& dataset,
                                                 const Tokenizer& tokenizer, const Settings& settings, Console& console,
                                                 const StopNow& stop) {
  const double begin_s = steady_seconds();
  const auto num_examples = static_cast<int64_t>(dataset.examples.size());
  const int64_t batch_size = settings.eval_batch_size, at_once = batch_size * world.size();
  const int64_t num_steps = ceil_divide(num_examples, at_once);
  Progress progress(console, {.description = "Answering", .total_steps = num_steps, .unit = "questions"});
  AnswerEvaluation result;
  const auto take = [&](int64_t first, const std::vector<std::vector<int32_t>>& texts) {
    for (const auto& ids : texts) result.predictions.emplace_back(trimmed(tokenizer.decode(ids, true), " \t\r\n"));
    progress.update(first / at_once + 1, std::ssize(texts));
  };
  const GenerationOptions options{.max_new_tokens = settings.max_new_tokens,
                                  .eos_id = engine.model().config().eos_token_id};
  if (!generate_all(engine, world, dataset.prompts, batch_size, options, take, stop)) return std::nullopt;
  result.metrics = score_answers(dataset, settings, result.predictions);
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
  Record record = Record::object();
  // Inserts into the object's vector, because Record's own insertion compares each new key with all earlier keys.
  auto& members = record.get_ref<Record::object_t&>();
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
    members.emplace_back(std::move(key), predictions[i]);
  }
  if (num_repeated > 0) {
    console.note(
        fmt::format("warning: {} of {} examples repeat the id of an earlier example. Their predictions have keys such "
                    "as \"id#2\"",
                    num_repeated, examples.size()));
  }
  return record;
}

}  // namespace tessera
