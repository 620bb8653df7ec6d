// Converts examples to samples: token ids with their targets.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tessera/data/chat_template.h"
#include "tessera/data/segments.h"

namespace tessera {

class ThreadPool;

// The tokens of a sample, and which of them carry loss. The first token never carries loss, because no position
// predicts it. P is the prompt, as prompt_text() returns it, and " {answer}" follows it. Or P is the prompt of a row
// {"prompt", "completion"}, and its completion follows unchanged. If the tokenizer puts a token before each text (BOS),
// a prompt and a plain text begin with this token. `encode` adds BOS only for TextPlace::start, so never in the middle
// of a sample.
enum class Objective {
  // P, then the answer and the end-of-sequence token; all tokens after P carry loss. If the question has no answer and
  // its text for that is empty, only the end-of-sequence token follows P.
  completion,
  causal_lm,  // the tokens of `completion`, or a plain text and the end-of-sequence token; all carry loss
  separate,   // P alone; the ids of "{answer}" are the labels of P's last positions (see encode_row)
  prompt,     // P and the end-of-sequence token, without the answer; all carry loss
};

// What to cut if the sample of a question is longer than max_length.
enum class Truncation {
  context,  // remove tokens of the context; keep question and answer
  right,    // cut the sample at max_length, as transformers does, even if the answer is lost
};

// What to do with a plain text that is longer than max_length.
enum class LongTexts {
  split,     // make consecutive samples; the last one ends with the end-of-sequence token
  truncate,  // make one sample of the first max_length tokens
  skip,      // omit the text
};

// How conversations become samples.
struct ChatOptions {
  const ChatTemplate* chat_template = nullptr;  // must be given if there are conversations
  LossOn loss_on = LossOn::assistant;
  const Tokenizer* tokenizer = nullptr;  // knows the special tokens
  std::vector<int32_t> end_ids{};        // the tokens that end a generated text
};

struct PromptOptions {
  Objective objective = Objective::completion;
  Truncation truncation = Truncation::context;
  LongTexts long_texts = LongTexts::split;
  int64_t max_length = 512;  // the most tokens of a sample, including its end-of-sequence token
  int32_t eos_id = 2;
  bool append_eos = true;  // false: no sample ends with the end-of-sequence token
  // Which part of a context to keep if it is too long. true, for training: the part around the answer. false: the
  // beginning, because generation does not know the answer. Evaluation uses the same input as generation.
  bool around_answer = true;
  std::string unanswerable_text = kNoAnswer;  // the {answer} of a question without an answer
  ChatOptions chat{};
  int64_t vocab_size = std::numeric_limits<int32_t>::max();  // of the model, for rows of token ids
};

inline constexpr int32_t kNoTarget = -100;

// The tokens of a sample. labels[t] is the token that position t must predict, or kNoTarget. In contrast to Hugging
// Face's labels, these labels are already shifted by one position. The last label is therefore always kNoTarget.
struct Sample {
  std::vector<int32_t> ids, labels;  // [N] each
};

// The samples of a data row: one sample, the pieces of a plain text, or none if the row is omitted or has a fault.
struct EncodedRow {
  std::vector<Sample> samples{};
  int64_t num_tokens = 0;  // the tokens that Objective describes, before they are cut or split
  // Why a row without samples cannot be used. Empty for a plain text that LongTexts::skip omits.
  BadRow fault{};
  // The fault is not one of this row: the template cannot be used in this way (RewrittenTurn).
  bool is_template_fault = false;
  // The token that ends a message of the assistant, if generation does not end at it, or −1 if no token ends it. Empty
  // if every message ends with an end token, and for rows that are no conversations.
  std::optional<int32_t> wrong_end{};
};

// Encodes an example as samples.
//
// Prompt and answer are encoded separately (segments.h says why the ids are those of one text). A context that is too
// long is cut around its answer; if the answer is not a copy of text in the context, the context keeps its beginning. A
// prompt without a context cannot be shortened.
//
// The pieces of a plain text have no gap and no overlap, and only the first one begins with BOS. Each piece has
// max_length tokens, except the last one, which has the remaining tokens. If only one token would remain and max_length
// is above 2, the last piece gets two tokens, and the piece before it has max_length - 1 tokens.
//
// Objective::separate: the ids are the prompt's tokens. The unshifted labels have the same length, and end with the
// answer's tokens. If the answer is longer than the prompt, only the last tokens of the answer are used. The labels are
// then shifted as for a model's output: position t predicts the label of position t + 1. The result is the same as if
// prompts and answers were encoded separately, padded on the left to the same length, and used as inputs and labels of
// a Hugging Face model. No space and no BOS come before the answer.
//
// A row has a fault if it exceeds max_length even without its context (only under Truncation::context), or if `encode`
// throws InputError for its text. Throws UsageError for a plain text under an objective other than causal_lm.
// The sample of a conversation is the text of its chat template. Under Objective::completion, the segments that
// ChatTemplate::segments_of() calls answers carry loss, without the blank text behind the token that ends a message.
// This token carries loss even if a {% generation %} block does not contain it.
EncodedRow encode_row(const Example& example, const EncodeFn& encode, const PromptOptions& options);

// Returns encode_row() of each example, in the order of the examples. Encodes on the threads of the pool.
std::vector<EncodedRow> encode_rows(std::span<const Example> examples, const EncodeFn& encode,
                                    const PromptOptions& options, ThreadPool& pool);

// The prompt alone, for generation, with at most max_length tokens. If the prompt is longer, Truncation::context cuts
// the end of the context, and Truncation::right cuts the end of the prompt. For a plain text, the prompt is the text.
// If the text is too long, the result is BOS and the last tokens of the text. Throws UsageError under
// Truncation::context if the prompt exceeds max_length even without a context.
std::vector<int32_t> encode_prompt(const Example& example, const EncodeFn& encode, const PromptOptions& options);

}  // namespace tessera
