#include "tessera/data/prompts.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/base/counted.h"
#include "tessera/base/error.h"
#include "tessera/base/math.h"
#include "tessera/base/option_names.h"
#include "tessera/base/text.h"
#include "tessera/base/thread_pool.h"

namespace tessera {

namespace {

using Ids = std::vector<int32_t>;

std::string too_long(const EncodedSegments& encoded, const Example& example, const PromptOptions& options,
                     bool answer) {
  if (example.conversation()) {
    return fmt::format("a maximum length of {} is too small: the conversation takes {}{}",
                       counted(options.max_length, "token"), counted(encoded.num_least, "token"),
                       example.id.empty() ? "" : fmt::format(" (id \"{}\")", example.id));
  }
  const Question* question = example.question();
  const char* asked = question ? "question" : "prompt";
  const char* answered = !answer ? "" : question ? " and answer" : " and completion";
  return fmt::format("a maximum length of {} is too small: the {}{} take{} {}{} (id \"{}\", \"{}\")",
                     counted(options.max_length, "token"), asked, answered, answer ? "" : "s",
                     counted(encoded.num_least, "token"),
                     question && !question->context.empty() ? " even without the context" : "", example.id,
                     printable(question ? question->question : example.completion()->prompt, 60));
}

std::string longer_remedy(const EncodedSegments& encoded) {
  return fmt::format("Give {} at least {}, or use {} right", option("max_length"), encoded.num_least,
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

// Whether the tokens are only blank text.
bool are_blank(std::span<const int32_t> ids, const Tokenizer& tokenizer) {
  return std::ranges::all_of(ids, [&](int32_t id) { return is_blank(tokenizer.bytes_of(id)); });
}

// Moves the end of each message of the assistant to the token that ends it, and returns EncodedRow::wrong_end.
std::optional<int32_t> settle_ends(EncodedSegments& encoded, const ChatOptions& options) {
  const Tokenizer& tokenizer = *options.tokenizer;
  const Ids& ids = encoded.ids;
  const auto ends_text = [&](int32_t id) { return std::ranges::find(options.end_ids, id) != options.end_ids.end(); };
  std::optional<int32_t> wrong;
  for (size_t begin = 0; begin < ids.size(); ++begin) {
    if (!encoded.is_answer[begin]) continue;
    size_t end = begin;
    while (end < ids.size() && encoded.is_answer[end]) ++end;
    size_t last = end;  // behind the last special token
    while (last > begin && !tokenizer.is_special(ids[last - 1]) && !ends_text(ids[last - 1])) --last;
    if (last > begin && are_blank(std::span(ids).subspan(last, end - last), tokenizer)) {
      std::fill(encoded.is_answer.begin() + static_cast<std::ptrdiff_t>(last),
                encoded.is_answer.begin() + static_cast<std::ptrdiff_t>(end), char{false});
      if (!ends_text(ids[last - 1])) wrong = ids[last - 1];
    } else if (end < ids.size() && ends_text(ids[end])) {
      encoded.is_answer[end] = true;
    } else {
      wrong = -1;
    }
    begin = end;
  }
  return wrong;
}

// What the model learns to produce for a question or a completion.
const std::string& answer_of(const Example& example, const PromptOptions& options) {
  if (const Completion* row = example.completion()) return row->completion;
  const Question& question = *example.question();
  return question.answers.empty() ? options.unanswerable_text : question.answers.front();
}

// Under Truncation::context, encode_segments() makes the segments fit. Under Truncation::right, the caller cuts the
// complete sample.
int64_t fitting_length(const PromptOptions& options) {
  return options.truncation == Truncation::right ? 0 : options.max_length;
}

// The segments of a question or a completion. A context that is cut keeps the part that the options choose.
std::vector<Segment> prompt_segments(const Example& example, const std::string& answer, const PromptOptions& options) {
  std::vector<Segment> segments = segments_of(example, answer);
  for (Segment& segment : segments) {
    if (!options.around_answer) segment.middle.reset();
  }
  return segments;
}

EncodedRow encode_text(const Example& example, const EncodeFn& encode, const PromptOptions& options) {
  if (options.objective != Objective::causal_lm) {
    throw UsageError(option_place("objective"),
                     fmt::format("the data set contains a plain text (\"{}\"), which has no answer to learn",
                                 printable(example.text()->text, 60)),
                     "Use " + option("objective") + " causal_lm for rows of {\"text\"}");
  }
  Ids ids = encode_segments(segments_of(example, ""), encode, 0).ids;
  if (options.append_eos) ids.push_back(options.eos_id);
  EncodedRow row{.samples = {}, .num_tokens = std::ssize(ids)};
  if (row.num_tokens > options.max_length && options.long_texts == LongTexts::skip) return row;
  row.samples = split(ids, options.max_length);
  if (options.long_texts == LongTexts::truncate && row.samples.size() > 1) {
    row.samples.assign(1, finish(ids, ids, options.max_length));
  }
  return row;
}

EncodedRow encode_separate(const Example& example, const EncodeFn& encode, const PromptOptions& options) {
  EncodedSegments prompt = encode_segments(prompt_segments(example, "", options), encode, fitting_length(options));
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

EncodedRow encode_conversation(const Example& example, const EncodeFn& encode, const PromptOptions& options) {
  const Conversation& conversation = *example.conversation();
  if (options.objective != Objective::completion && options.objective != Objective::causal_lm) {
    throw UsageError(
        option_place("objective"), "the data set contains a conversation, which has no such samples",
        fmt::format("Use {} completion, and {} for what carries loss", option("objective"), option("loss_on")));
  }
  const bool all = options.objective == Objective::causal_lm || options.chat.loss_on == LossOn::all;
  const std::vector<Segment> segments =
      options.chat.chat_template->segments_of(conversation, all ? LossOn::all : options.chat.loss_on);
  EncodedSegments encoded = encode_segments(segments, encode, fitting_length(options));
  EncodedRow row{.samples = {}, .num_tokens = encoded.num_tokens};
  if (!encoded.fits) {
    row.fault = {example.place, too_long(encoded, example, options, true), longer_remedy(encoded)};
    return row;
  }
  if (!all) row.wrong_end = settle_ends(encoded, options.chat);
  Ids labels = encoded.ids;
  for (size_t t = 0; t < labels.size(); ++t) {
    if (!encoded.is_answer[t]) labels[t] = kNoTarget;
  }
  row.samples.push_back(finish(std::move(encoded.ids), std::move(labels), options.max_length));
  return row;
}

// The ids are used unchanged: neither a BOS nor an end token is added, and no id is cut off.
EncodedRow encode_tokens(const Example& example, const PromptOptions& options) {
  const TokenRow& row = *example.tokens();
  EncodedRow encoded{.samples = {}, .num_tokens = std::ssize(row.ids)};
  const auto wrong = std::ranges::find_if(row.ids, [&](int32_t id) { return id < 0 || id >= options.vocab_size; });
  if (row.ids.empty() || row.ids.size() != row.has_loss.size()) {
    const std::string what = row.ids.empty() ? "the row has no tokens"
                                             : fmt::format("the row has {}, but {}", counted(std::ssize(row.ids), "id"),
                                                           counted(std::ssize(row.has_loss), "value of the loss mask"));
    encoded.fault = {example.place, what, "Give a mask with one value for each id"};
  } else if (wrong != row.ids.end()) {
    encoded.fault = {example.place, fmt::format("the id {} is not in the vocabulary of {}", *wrong, options.vocab_size),
                     "Use the tokenizer of the model"};
  } else if (encoded.num_tokens > options.max_length) {
    encoded.fault = {example.place,
                     fmt::format("a maximum length of {} is too small: the row has {} ids",
                                 counted(options.max_length, "token"), encoded.num_tokens),
                     fmt::format("Give {} at least {}, or shorten the row", option("max_length"), encoded.num_tokens)};
  }
  if (!encoded.fault.what.empty()) return encoded;
  Ids labels = row.ids;
  for (size_t t = 0; t < labels.size(); ++t) {
    if (!row.has_loss[t]) labels[t] = kNoTarget;
  }
  encoded.samples.push_back(finish(row.ids, std::move(labels), options.max_length));
  return encoded;
}

// A question or a completion, under the objectives whose labels are the sample's own tokens.
EncodedRow encode_question(const Example& example, const EncodeFn& encode, const PromptOptions& options) {
  const bool has_answer = options.objective != Objective::prompt;
  std::vector<Segment> segments = prompt_segments(example, has_answer ? answer_of(example, options) : "", options);
  if (options.append_eos) segments.push_back({.content = Ids{options.eos_id}, .is_answer = true});
  EncodedSegments encoded = encode_segments(segments, encode, fitting_length(options));
  EncodedRow row{.samples = {}, .num_tokens = encoded.num_tokens};
  if (!encoded.fits) {
    row.fault = {example.place, too_long(encoded, example, options, has_answer), longer_remedy(encoded)};
    return row;
  }
  Ids labels = encoded.ids;
  for (size_t t = 0; t < labels.size(); ++t) {
    if (options.objective == Objective::completion && !encoded.is_answer[t]) labels[t] = kNoTarget;
  }
  row.samples.push_back(finish(std::move(encoded.ids), std::move(labels), options.max_length));
  return row;
}

}  // namespace

EncodedRow encode_row(const Example& example, const EncodeFn& encode, const PromptOptions& options) {
  TESSERA_ASSERT(options.max_length > 0);
  try {
    if (example.text()) return encode_text(example, encode, options);
    if (example.conversation()) return encode_conversation(example, encode, options);
    if (example.tokens()) return encode_tokens(example, options);
    if (options.objective == Objective::separate) return encode_separate(example, encode, options);
    return encode_question(example, encode, options);
  } catch (const RewrittenTurn& error) {
    return {.fault = {example.place, error.what(), ""}, .is_template_fault = true};
  } catch (const InputError& error) {  // the tokenizer or the template rejects the text
    return {.fault = {example.place, error.what(), ""}};
  }
}

std::vector<EncodedRow> encode_rows(std::span<const Example> examples, const EncodeFn& encode,
                                    const PromptOptions& options, ThreadPool& pool) {
  constexpr int64_t kChunk = 16;  // examples per task; small, because their lengths differ
  std::vector<EncodedRow> rows(examples.size());
  const int64_t count = std::ssize(examples);
  pool.run(ceil_divide(count, kChunk), [&](int64_t chunk) {
    for (int64_t i = chunk * kChunk; i < std::min(count, (chunk + 1) * kChunk); ++i) {
      rows[static_cast<size_t>(i)] = encode_row(examples[static_cast<size_t>(i)], encode, options);
    }
  });
  return rows;
}

std::vector<int32_t> encode_prompt(const Example& example, const EncodeFn& encode, const PromptOptions& options) {
  TESSERA_ASSERT(options.max_length > 0);
  const auto limit = static_cast<size_t>(options.max_length);
  if (example.text()) {
    Ids ids = encode_segments(segments_of(example, ""), encode, 0).ids;
    if (ids.size() > limit) {
      const size_t num_before = std::min(encode(TextPlace::start, "").size(), limit);  // BOS stays
      const auto first = ids.begin() + static_cast<std::ptrdiff_t>(num_before);
      ids.erase(first, first + static_cast<std::ptrdiff_t>(ids.size() - limit));
    }
    return ids;
  }
  PromptOptions from_start = options;
  from_start.around_answer = false;
  const std::vector<Segment> segments = example.conversation()
                                            ? options.chat.chat_template->prompt_segments_of(*example.conversation())
                                            : prompt_segments(example, "", from_start);
  EncodedSegments prompt = encode_segments(segments, encode, fitting_length(options));
  if (!prompt.fits) {
    throw UsageError(option_place("max_length"), too_long(prompt, example, options, false), longer_remedy(prompt));
  }
  prompt.ids.resize(std::min(prompt.ids.size(), limit));
  return std::move(prompt.ids);
}

}  // namespace tessera
