// Reads arbitrary bytes as a data set. rows_from_text either throws an InputError, or returns examples that satisfy the
// contract of rows_from_text. The samples that are made from these examples must also be well formed.
#include <cstdint>
#include <string_view>

#include "tessera/base/error.h"
#include "tessera/data/prompts.h"
#include "tessera/data/scoring.h"

namespace {

std::vector<int32_t> bytes_of(tessera::TextPlace, std::string_view text) {
  return {text.begin(), text.end()};
}

void check(const tessera::Example& example) {
  using namespace tessera;
  if (const Conversation* conversation = example.conversation()) {
    TESSERA_ASSERT(!conversation->messages.empty());
    for (const auto& message : conversation->messages) {
      TESSERA_ASSERT(message.at("role").is_string() &&
                     (message.at("content").is_string() || message.contains("tool_calls")));
    }
    return;
  }
  if (const Question* question = example.question()) {
    TESSERA_ASSERT(question->answerable == (question->answer_start >= 0));
    if (question->answerable) {
      const auto start = static_cast<size_t>(question->answer_start);
      TESSERA_ASSERT(question->context.compare(start, question->answers[0].size(), question->answers[0]) == 0);
    }
    TESSERA_ASSERT(f1(question->question, question->answers, Scoring::official) <= 1.0);
  }
  PromptOptions options{.objective = example.text() ? Objective::causal_lm : Objective::completion, .max_length = 64};
  const EncodedRow row = encode_row(example, bytes_of, options);
  int64_t num_tokens = 0;
  for (const Sample& sample : row.samples) {
    TESSERA_ASSERT(sample.ids.size() == sample.labels.size() && sample.ids.size() <= 64);
    TESSERA_ASSERT(sample.labels.back() == kNoTarget);
    num_tokens += std::ssize(sample.ids);
  }
  TESSERA_ASSERT(num_tokens <= row.num_tokens);
  // A row has no samples exactly if it has a fault: more than max_length tokens, even without its context. Here each
  // byte is a token.
  TESSERA_ASSERT(row.samples.empty() == !row.fault.what.empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view content(reinterpret_cast<const char*>(data), size);
  for (const char* name : {"fuzz", "fuzz.jsonl", "fuzz.txt"}) {
    try {
      const tessera::ExampleRows rows = tessera::rows_from_text(content, name, {.text_rows = tessera::TextRows::line});
      for (const auto& example : rows.examples) check(example);
      TESSERA_ASSERT(rows.bad.empty() || !rows.bad[0].what.empty());
    } catch (const tessera::InputError&) {
    }
  }
  return 0;
}
