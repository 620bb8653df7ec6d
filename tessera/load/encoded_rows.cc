#include "tessera/load/encoded_rows.h"

#include <algorithm>
#include <limits>

#include "tessera/base/error.h"
#include "tessera/base/thread_pool.h"
#include "tessera/data/scoring.h"
#include "tessera/load/chat.h"
#include "tessera/load/model_files.h"

namespace tessera {
namespace {

// Removes the answers of questions whose answers all say that the question has none.
void remove_no_answers(std::span<Example> examples, const std::string& no_answer) {
  for (Example& example : examples) {
    const auto says_so = [&](const std::string& answer) { return says_no_answer(answer, no_answer); };
    Question* question = example.question();
    if (!question || !std::ranges::all_of(question->answers, says_so)) continue;
    question->answers.clear();
    question->answerable = question->free_answer = false;
    question->answer_start = -1;
  }
}

}  // namespace

RowOptions row_options(const Settings& settings) {
  return {.text_rows = settings.txt_rows, .kind = settings.dataset_format, .fields = settings.fields};
}

void EncodedRows::add(const EncodedRow& row, const Example& example, const std::function<void(const Sample&)>& store) {
  TESSERA_ASSERT(row.num_tokens <= std::numeric_limits<int32_t>::max());
  RowFacts facts{.first_sample = index->size(),
                 .num_samples = static_cast<int32_t>(row.samples.size()),
                 .num_tokens = static_cast<int32_t>(row.num_tokens)};
  const auto set = [&](RowFacts::Flag flag, bool value) { facts.flags |= value ? uint32_t{flag} : 0; };
  set(RowFacts::kUnanswerable, example.is_unanswerable());
  if (const Question* question = example.question()) {
    set(RowFacts::kWithoutContext, question->context.empty());
    set(RowFacts::kFreeAnswer, question->free_answer);
  }
  set(RowFacts::kTemplateFault, row.is_template_fault);
  if (!row.fault.what.empty()) {
    set(RowFacts::kFault, true);
    facts.extra = static_cast<int32_t>(faults.size());
    faults.push_back(row.fault);
  } else if (row.wrong_end) {
    set(RowFacts::kWrongEnd, true);
    facts.extra = *row.wrong_end;
  }
  has_conversations = has_conversations || example.conversation() != nullptr;
  has_texts = has_texts || example.text() != nullptr;
  rows.push_back(facts);
  for (const Sample& sample : row.samples) {
    index->add(sample);
    store(sample);
  }
}

RowCount EncodedRows::count(int64_t row) const {
  const RowFacts& facts = at(row);
  RowCount count{.num_samples = facts.num_samples, .num_tokens = facts.num_tokens};
  const auto first = static_cast<size_t>(facts.first_sample), end = first + static_cast<size_t>(facts.num_samples);
  count.num_used = index->starts[end] - index->starts[first];
  for (size_t i = first; i < end; ++i) count.has_target = count.has_target || index->num_targets[i] > 0;
  if (facts.has(RowFacts::kWrongEnd)) count.wrong_end = facts.extra;
  if (facts.has(RowFacts::kFault)) count.fault = &faults[static_cast<size_t>(facts.extra)];
  count.is_unanswerable = facts.has(RowFacts::kUnanswerable);
  count.is_without_context = facts.has(RowFacts::kWithoutContext);
  count.has_free_answer = facts.has(RowFacts::kFreeAnswer);
  return count;
}

Samples EncodedRows::samples_of(std::span<const int64_t> of_rows) const {
  std::vector<int64_t> order;
  for (const int64_t row : of_rows) {
    for (int64_t i = 0; i < at(row).num_samples; ++i) order.push_back(at(row).first_sample + i);
  }
  return {index, tokens, std::move(order)};
}

RowEncoder::RowEncoder(const Settings& settings, const Tokenizer& tokenizer, const ModelConfig& config,
                       ThreadPool& pool, bool around_answer)
    : settings_(settings),
      tokenizer_(tokenizer),
      config_(config),
      pool_(pool),
      encode_(encoder_of(tokenizer, config)),
      options_{settings.objective,  settings.truncation,        settings.long_texts,
               settings.max_length, config.eos_token_id,        settings.append_eos,
               around_answer,       settings.unanswerable_text, {},
               config.vocab_size} {}

const ChatTemplate& RowEncoder::chat_template() {
  if (!chat_template_) {
    chat_template_.emplace(chat_template_of(settings_, tokenizer_, config_, TemplateDate::must_be_given));
    options_.chat = chat_options_of(settings_, *chat_template_, tokenizer_, config_);
  }
  return *chat_template_;
}

const PromptOptions& RowEncoder::options_for(std::span<const Example> examples) {
  if (std::ranges::any_of(examples, [](const Example& example) { return example.conversation() != nullptr; })) {
    chat_template();
  }
  return options_;
}

std::vector<EncodedRow> RowEncoder::encode(std::span<const Example> examples) {
  return encode_rows(examples, encode_, options_for(examples), pool_);
}

void RowEncoder::add(std::span<Example> examples, EncodedRows& rows, const std::function<void(const Sample&)>& store) {
  constexpr size_t kAtOnce = 8192;  // rows; their samples are in memory twice for a moment
  remove_no_answers(examples, settings_.unanswerable_text);
  for (; !examples.empty(); examples = examples.subspan(std::min(kAtOnce, examples.size()))) {
    const auto part = examples.first(std::min(kAtOnce, examples.size()));
    const std::vector<EncodedRow> encoded = encode(part);
    for (size_t i = 0; i < part.size(); ++i) rows.add(encoded[i], part[i], store);
  }
}

std::vector<std::vector<int32_t>> RowEncoder::prompts(std::span<const Example> examples) {
  std::vector<std::vector<int32_t>> prompts(examples.size());
  const PromptOptions& options = options_for(examples);
  pool_.for_ranges(std::ssize(examples), 16, [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
      prompts[i] = encode_prompt(examples[i], encode_, options);
    }
  });
  return prompts;
}

}  // namespace tessera
