#include "tessera/data/prompts.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/base/error.h"
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

// The `room` tokens of a context to keep around its answer. `text` is what `tokens` encode; the answer is its bytes
// [answer.begin, answer.end).
//
// The encoding gives no offsets, but encoding what stands before the answer does: tokens that both encodings begin with
// lie before the answer whole, and likewise those that both end with lie behind it. What is between holds the answer
// for certain; the counts tell its middle.
Range window_around(const Ids& tokens, std::string_view text, Range answer, int64_t room, const EncodeFn& encode) {
  const Ids before = encode(text.substr(0, static_cast<size_t>(answer.begin)));
  const Ids behind = encode(text.substr(static_cast<size_t>(answer.end)));
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

// The prompt's tokens, at most `room`, the context shortened where needed. `tail` tokens are to follow the prompt.
Ids fit_prompt(const Example& example, const EncodeFn& encode, const PromptOptions& options, int64_t tail) {
  const int64_t room = options.max_length - tail;
  Ids whole = encode(prompt_text(example.question, example.context));
  if (std::ssize(whole) <= room) return whole;

  const std::string text = " " + example.context;
  Ids ids = encode("Question: " + example.question + " Context:");
  const Ids end = encode(" Answer:");
  const int64_t context_room = room - std::ssize(ids) - std::ssize(end);
  if (context_room < 0) {
    const int64_t needed = std::ssize(ids) + std::ssize(end) + tail;
    throw UsageError("--max-length",
                     fmt::format("{} tokens are too few for an example whose question{} take{} {} without its context "
                                 "(id \"{}\", \"{:.60}\")",
                                 options.max_length, tail > 0 ? " and answer" : "", tail > 0 ? "" : "s", needed,
                                 example.id, example.question),
                     fmt::format("Give at least {}, or use --truncation right", needed));
  }
  const Ids context = encode(text);
  const int64_t kept = std::min(context_room, std::ssize(context));
  Range range{0, kept};
  if (options.around_answer && example.answerable) {
    const int64_t begin = example.answer_start + 1;  // the space before the context counts
    const Range answer{begin, begin + std::ssize(example.answers.front())};
    range = window_around(context, text, answer, kept, encode);
  }
  append(ids, std::span(context).subspan(static_cast<size_t>(range.begin), static_cast<size_t>(kept)));
  append(ids, end);
  return ids;
}

// Cuts the row at max_length and turns labels that stand on their own tokens into those that predict them.
Sample finish(Ids ids, Ids unshifted_labels, int64_t max_length) {
  const size_t size = std::min(ids.size(), static_cast<size_t>(max_length));
  ids.resize(size);
  Ids labels(size, kNoTarget);
  for (size_t t = 0; t + 1 < size; ++t) labels[t] = unshifted_labels[t + 1];
  return {std::move(ids), std::move(labels)};
}

Sample encode_text(const Example& example, const EncodeFn& encode, const PromptOptions& options) {
  if (options.objective != Objective::causal_lm) {
    throw UsageError(
        "--objective",
        fmt::format("the data set holds a plain text (\"{:.60}\"), which has no answer to learn", *example.text),
        "Use --objective causal_lm for rows of {\"text\"}");
  }
  Ids ids = encode(*example.text);
  ids.push_back(options.eos_id);
  Ids labels = ids;
  return finish(std::move(ids), std::move(labels), options.max_length);
}

Ids prompt_ids(const Example& example, const EncodeFn& encode, const PromptOptions& options, int64_t tail) {
  if (options.truncation == Truncation::context) return fit_prompt(example, encode, options, tail);
  return encode(prompt_text(example.question, example.context));
}

Sample encode_separate(const Example& example, const EncodeFn& encode, const PromptOptions& options) {
  Ids ids = prompt_ids(example, encode, options, 0);
  ids.resize(std::min(ids.size(), static_cast<size_t>(options.max_length)));
  const Ids answer = encode(example.answers.front());
  const size_t laid = std::min(ids.size(), answer.size());
  Ids labels(ids.size(), kNoTarget);
  std::copy(answer.end() - static_cast<std::ptrdiff_t>(laid), answer.end(),
            labels.end() - static_cast<std::ptrdiff_t>(laid));
  return finish(std::move(ids), std::move(labels), options.max_length);
}

}  // namespace

std::string prompt_text(std::string_view question, std::string_view context) {
  return fmt::format("Question: {} Context: {} Answer:", question, context);
}

Sample encode_sample(const Example& example, const EncodeFn& encode, const PromptOptions& options) {
  TESSERA_ASSERT(options.max_length > 0);
  if (example.text) return encode_text(example, encode, options);
  TESSERA_ASSERT(!example.answers.empty());
  if (options.objective == Objective::separate) return encode_separate(example, encode, options);

  Ids answer = encode(" " + example.answers.front());
  answer.push_back(options.eos_id);
  Ids ids = prompt_ids(example, encode, options, std::ssize(answer));
  Ids labels = options.objective == Objective::causal_lm ? ids : Ids(ids.size(), kNoTarget);
  append(ids, answer);
  append(labels, answer);
  return finish(std::move(ids), std::move(labels), options.max_length);
}

std::vector<Sample> encode_samples(std::span<const Example> examples, const EncodeFn& encode,
                                   const PromptOptions& options, ThreadPool& pool) {
  constexpr int64_t kChunk = 16;  // examples a thread takes at a time: their lengths differ
  std::vector<Sample> samples(examples.size());
  const int64_t count = std::ssize(examples);
  pool.run((count + kChunk - 1) / kChunk, [&](int64_t chunk) {
    for (int64_t i = chunk * kChunk; i < std::min(count, (chunk + 1) * kChunk); ++i) {
      samples[static_cast<size_t>(i)] = encode_sample(examples[static_cast<size_t>(i)], encode, options);
    }
  });
  return samples;
}

std::vector<int32_t> encode_prompt(const Example& example, const EncodeFn& encode, const PromptOptions& options) {
  TESSERA_ASSERT(options.max_length > 0);
  const auto limit = static_cast<size_t>(options.max_length);
  if (example.text) {
    Ids ids = encode(*example.text);
    if (ids.size() > limit) ids.erase(ids.begin(), ids.end() - static_cast<std::ptrdiff_t>(limit));
    return ids;
  }
  PromptOptions from_start = options;
  from_start.around_answer = false;
  Ids ids = prompt_ids(example, encode, from_start, 0);
  ids.resize(std::min(ids.size(), limit));
  return ids;
}

}  // namespace tessera
