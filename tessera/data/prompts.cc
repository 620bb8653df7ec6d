#include "tessera/data/prompts.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/base/counted.h"
#include "tessera/base/error.h"
#include "tessera/base/option_names.h"
#include "tessera/base/thread_pool.h"

namespace tessera {

namespace {

using Ids = std::vector<int32_t>;

void append(Ids& ids, std::span<const int32_t> more) {
  ids.insert(ids.end(), more.begin(), more.end());
}

struct Range {
  int64_t begin, end;
};

// Chooses the part of a context that is kept around its answer: a range of `room` indices of `tokens`. `tokens` is the
// encoding of `text`. The answer is bytes [answer.begin, answer.end) of `text`.
//
// Tokens have no offsets into the text. Therefore the text before the answer and the text after it are also encoded
// separately (`before`, `behind`). The tokens that `before` and `tokens` have in common at the start are before the
// answer. The tokens that `behind` and `tokens` have in common at the end are after the answer. The tokens in between
// (`hull`) contain the answer. The middle of the answer is computed from the lengths of `before` and `behind`.
Range window_around(const Ids& tokens, std::string_view text, Range answer, int64_t room, const EncodeFn& encode) {
  const Ids before = encode(TextPlace::inside, text.substr(0, static_cast<size_t>(answer.begin)));
  const Ids behind = encode(TextPlace::inside, text.substr(static_cast<size_t>(answer.end)));
  const int64_t size = std::ssize(tokens);
  const int64_t surely_before =
      std::mismatch(before.begin(), before.end(), tokens.begin(), tokens.end()).first - before.begin();
  const int64_t surely_behind =
      std::mismatch(behind.rbegin(), behind.rend(), tokens.rbegin(), tokens.rend()).first - behind.rbegin();
  const Range hull{surely_before, size - surely_behind};

  const int64_t middle_twice = std::ssize(before) + size - std::ssize(behind);
  int64_t begin = (middle_twice - room) / 2;
  if (hull.end - hull.begin <= room) begin = std::clamp(begin, hull.end - room, hull.begin);
  begin = std::clamp<int64_t>(begin, 0, size - room);
  return {begin, begin + room};
}

std::string full_prompt(const Example& example) {
  return example.prompt ? *example.prompt : prompt_text(example.question, example.context);
}

// The tokens of a prompt, cut to fit if possible.
struct FittedPrompt {
  Ids ids;
  int64_t num_tokens = 0;  // before cutting
  int64_t num_least = 0;   // tokens without the context, plus fit_prompt's `tail`; set only if the prompt was too long
  bool fits = true;
};

// Under Truncation::context, cuts a longer prompt to max_length - tail tokens, because `tail` tokens follow it. Under
// Truncation::right, cuts nothing: the caller cuts the complete sample.
FittedPrompt fit_prompt(const Example& example, const EncodeFn& encode, const PromptOptions& options, int64_t tail) {
  const int64_t room = options.max_length - tail;
  FittedPrompt prompt;
  prompt.ids = encode(TextPlace::start, full_prompt(example));
  prompt.num_tokens = std::ssize(prompt.ids);
  if (options.truncation == Truncation::right || prompt.num_tokens <= room) return prompt;
  if (example.context.empty()) {
    prompt.num_least = prompt.num_tokens + tail;
    prompt.fits = false;
    return prompt;
  }

  const std::string text = " " + example.context;
  Ids& ids = prompt.ids;
  ids = encode(TextPlace::start, "Question: " + example.question + " Context:");
  const Ids end = encode(TextPlace::inside, " Answer:");
  const int64_t context_room = room - std::ssize(ids) - std::ssize(end);
  prompt.num_least = std::ssize(ids) + std::ssize(end) + tail;
  prompt.fits = context_room >= 0;
  if (!prompt.fits) return prompt;
  const Ids context = encode(TextPlace::inside, text);
  const int64_t kept = std::min(context_room, std::ssize(context));
  Range range{0, kept};
  if (options.around_answer && example.answerable) {
    const int64_t begin = example.answer_start + 1;  // 1 for the space before the context
    const Range answer{begin, begin + std::ssize(example.answers.front())};
    range = window_around(context, text, answer, kept, encode);
  }
  append(ids, std::span(context).subspan(static_cast<size_t>(range.begin), static_cast<size_t>(kept)));
  append(ids, end);
  return prompt;
}

std::string too_long(const FittedPrompt& prompt, const Example& example, const PromptOptions& options, bool answer) {
  const char* asked = example.prompt ? "prompt" : "question";
  const char* answered = !answer ? "" : example.prompt ? " and completion" : " and answer";
  return fmt::format("a maximum length of {} is too small: the {}{} take{} {}{} (id \"{}\", \"{}\")",
                     counted(options.max_length, "token"), asked, answered, answer ? "" : "s",
                     counted(prompt.num_least, "token"), example.context.empty() ? "" : " even without the context",
                     example.id, printable(example.prompt ? *example.prompt : example.question, 60));
}

std::string longer_remedy(const FittedPrompt& prompt) {
  return fmt::format("Give {} at least {}, or use {} right", option("max_length"), prompt.num_least,
                     option("truncation"));
}

// Cuts the sample at max_length. Shifts labels from their own positions to the positions that predict them.
Sample finish(Ids ids, Ids unshifted_labels, int64_t max_length) {
  const size_t size = std::min(ids.size(), static_cast<size_t>(max_length));
  ids.resize(size);
  Ids labels(size, kNoTarget);
  for (size_t t = 0; t + 1 < size; ++t) labels[t] = unshifted_labels[t + 1];
  return {std::move(ids), std::move(labels)};
}

// Splits a text into consecutive pieces of at most max_length tokens. A last piece of one token would have no target.
// Therefore, if max_length is above 2, the last token of the previous piece moves to this last piece.
std::vector<Sample> split(const Ids& ids, int64_t max_length) {
  std::vector<Sample> pieces;
  const int64_t size = std::ssize(ids);
  for (int64_t begin = 0; begin < size;) {
    int64_t end = std::min(size, begin + max_length);
    if (size - end == 1 && max_length > 2) --end;
    const Ids piece(ids.begin() + begin, ids.begin() + end);
    pieces.push_back(finish(piece, piece, max_length));
    begin = end;
  }
  return pieces;
}

EncodedRow encode_text(const Example& example, const EncodeFn& encode, const PromptOptions& options) {
  if (options.objective != Objective::causal_lm) {
    throw UsageError(option_place("objective"),
                     fmt::format("the data set contains a plain text (\"{}\"), which has no answer to learn",
                                 printable(*example.text, 60)),
                     "Use " + option("objective") + " causal_lm for rows of {\"text\"}");
  }
  Ids ids = encode(TextPlace::start, *example.text);
  if (options.append_eos) ids.push_back(options.eos_id);
  EncodedRow row{.samples = {}, .num_tokens = std::ssize(ids)};
  if (row.num_tokens > options.max_length && options.long_texts == LongTexts::skip) return row;
  row.samples = split(ids, options.max_length);
  if (options.long_texts == LongTexts::truncate && row.samples.size() > 1) {
    row.samples.assign(1, finish(ids, ids, options.max_length));
  }
  return row;
}

const std::string& answer_of(const Example& example, const PromptOptions& options) {
  return example.answers.empty() ? options.unanswerable_text : example.answers.front();
}

EncodedRow encode_separate(const Example& example, const EncodeFn& encode, const PromptOptions& options) {
  FittedPrompt prompt = fit_prompt(example, encode, options, 0);
  EncodedRow row{.samples = {}, .num_tokens = prompt.num_tokens};
  if (!prompt.fits) {
    row.fault = {example.place, too_long(prompt, example, options, false), longer_remedy(prompt)};
    return row;
  }
  Ids& ids = prompt.ids;
  ids.resize(std::min(ids.size(), static_cast<size_t>(options.max_length)));
  const Ids answer = encode(TextPlace::inside, answer_of(example, options));
  const size_t laid = std::min(ids.size(), answer.size());
  Ids labels(ids.size(), kNoTarget);
  std::copy(answer.end() - static_cast<std::ptrdiff_t>(laid), answer.end(),
            labels.end() - static_cast<std::ptrdiff_t>(laid));
  row.samples.push_back(finish(std::move(ids), std::move(labels), options.max_length));
  return row;
}

}  // namespace

std::string prompt_text(std::string_view question, std::string_view context) {
  if (context.empty()) return fmt::format("Question: {} Answer:", question);
  return fmt::format("Question: {} Context: {} Answer:", question, context);
}

static EncodedRow encode_question(const Example& example, const EncodeFn& encode, const PromptOptions& options) {
  const bool has_answer = options.objective != Objective::prompt;
  const std::string& text = answer_of(example, options);
  const std::string space = example.prompt ? "" : " ";
  Ids answer = has_answer && !text.empty() ? encode(TextPlace::inside, space + text) : Ids();
  if (options.append_eos) answer.push_back(options.eos_id);
  FittedPrompt prompt = fit_prompt(example, encode, options, std::ssize(answer));
  EncodedRow row{.samples = {}, .num_tokens = prompt.num_tokens + std::ssize(answer)};
  if (!prompt.fits) {
    row.fault = {example.place, too_long(prompt, example, options, has_answer), longer_remedy(prompt)};
    return row;
  }
  Ids& ids = prompt.ids;
  Ids labels = options.objective == Objective::completion ? Ids(ids.size(), kNoTarget) : ids;
  append(ids, answer);
  append(labels, answer);
  row.samples.push_back(finish(std::move(ids), std::move(labels), options.max_length));
  return row;
}

EncodedRow encode_row(const Example& example, const EncodeFn& encode, const PromptOptions& options) {
  TESSERA_ASSERT(options.max_length > 0);
  try {
    if (example.text) return encode_text(example, encode, options);
    if (options.objective == Objective::separate) return encode_separate(example, encode, options);
    return encode_question(example, encode, options);
  } catch (const InputError& error) {  // the tokenizer rejects the text
    return {.fault = {example.place, error.what(), ""}};
  }
}

std::vector<EncodedRow> encode_rows(std::span<const Example> examples, const EncodeFn& encode,
                                    const PromptOptions& options, ThreadPool& pool) {
  constexpr int64_t kChunk = 16;  // examples per task; small, because their lengths differ
  std::vector<EncodedRow> rows(examples.size());
  const int64_t count = std::ssize(examples);
  pool.run((count + kChunk - 1) / kChunk, [&](int64_t chunk) {
    for (int64_t i = chunk * kChunk; i < std::min(count, (chunk + 1) * kChunk); ++i) {
      rows[static_cast<size_t>(i)] = encode_row(examples[static_cast<size_t>(i)], encode, options);
    }
  });
  return rows;
}

std::vector<int32_t> encode_prompt(const Example& example, const EncodeFn& encode, const PromptOptions& options) {
  TESSERA_ASSERT(options.max_length > 0);
  const auto limit = static_cast<size_t>(options.max_length);
  if (example.text) {
    Ids ids = encode(TextPlace::start, *example.text);
    if (ids.size() > limit) {
      const size_t num_before = std::min(encode(TextPlace::start, "").size(), limit);  // BOS stays
      const auto first = ids.begin() + static_cast<std::ptrdiff_t>(num_before);
      ids.erase(first, first + static_cast<std::ptrdiff_t>(ids.size() - limit));
    }
    return ids;
  }
  PromptOptions from_start = options;
  from_start.around_answer = false;
  FittedPrompt prompt = fit_prompt(example, encode, from_start, 0);
  if (!prompt.fits) {
    throw UsageError(option_place("max_length"), too_long(prompt, example, options, false), longer_remedy(prompt));
  }
  prompt.ids.resize(std::min(prompt.ids.size(), limit));
  return std::move(prompt.ids);
}

}  // namespace tessera
