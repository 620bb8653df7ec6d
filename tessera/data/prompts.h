// From examples to rows of token ids with their targets.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/data/examples.h"

namespace tessera {

class ThreadPool;

// Text to token ids, nothing added at either end. Called from several threads at once.
using EncodeFn = std::function<std::vector<int32_t>(std::string_view)>;

// What a sample's tokens are and which of them carry loss. P = "Question: {question} Context: {context} Answer:".
enum class Objective {
  completion,  // P, then " {answer}" and the end-of-sequence token, which alone carry loss
  causal_lm,   // the same tokens, or a plain text and the end-of-sequence token; all carry loss
  separate,    // P alone; the ids of "{answer}" are laid as labels over its last positions (see encode_row)
};

// What gives way when a sample is longer than max_length.
enum class Truncation {
  context,  // the context is shortened by tokens, so that question and answer survive
  right,    // the row is cut at max_length, whatever is lost, as transformers does
};

// What becomes of a plain text that is longer than max_length.
enum class LongTexts {
  split,     // it becomes consecutive samples. The end-of-sequence token stands at the end of the last one.
  truncate,  // its first max_length tokens are one sample
  skip,      // it is left out
};

struct PromptOptions {
  Objective objective = Objective::completion;
  Truncation truncation = Truncation::context;
  LongTexts long_texts = LongTexts::split;
  int64_t max_length = 512;  // tokens of a sample, its end-of-sequence token included
  int32_t eos_id = 2;
  // Which part of a context that is too long is kept: the part around the answer, in training; else its beginning, as
  // where the answer is not known: in generation, and in evaluation that is to see what generation sees.
  bool around_answer = true;
};

inline constexpr int32_t kNoTarget = -100;

// A row of tokens. labels[t] is the token that position t must predict (the labels of Hugging Face, shifted already),
// or kNoTarget; so the last one is always kNoTarget.
struct Sample {
  std::vector<int32_t> ids, labels;  // [N] each
};

// "Question: {question} Context: {context} Answer:"
std::string prompt_text(std::string_view question, std::string_view context);

// What a row of a data set becomes: one sample, or the pieces of a plain text, or none where it is left out.
struct EncodedRow {
  std::vector<Sample> samples{};
  int64_t num_tokens = 0;  // of the complete row, the end-of-sequence token included
  // Why a row without samples cannot be used. Empty for a plain text that LongTexts::skip leaves out.
  BadRow fault{};
};

// The samples of an example.
//
// Prompt and answer are encoded apart: for byte-level BPE whose regular expression starts a new piece at a space
// before a letter, and never joins a colon to the space behind it (BLOOM, GPT-2, Llama 3, Qwen), the ids are those of
// the whole text "… Answer: {answer}". The same holds for the places at which the prompt is cut into question, context
// and the word "Answer:" when the context has to be shortened; a prompt that fits is encoded in one piece.
//
// A context shortened around its answer keeps a window of its tokens with the answer in the middle, or as near to it as
// the context's ends allow; an answer longer than the window is cut evenly at both sides of the context's copy.
//
// The pieces of a plain text follow each other without a gap or an overlap. All have max_length tokens, except the last
// one. If one token would remain for it, the piece before gives it another.
//
// Objective::separate: unshifted labels over the prompt's tokens, the answer's last one on the prompt's last position
// (of an answer longer than the prompt the end remains); then the shift of the model, by which position t predicts the
// label of position t + 1. It is what becomes of prompts and answers that are encoded apart, each padded on the left
// to one length, and then taken as inputs and labels; so the answer has no space before it.
//
// A row whose question and answer alone exceed max_length under Truncation::context has a fault, and so has a text that
// `encode` refuses with an InputError. Throws UsageError for a
// plain text under an objective other than causal_lm.
EncodedRow encode_row(const Example& example, const EncodeFn& encode, const PromptOptions& options);

// The same of many examples in their order, encoded on the threads of the pool.
std::vector<EncodedRow> encode_rows(std::span<const Example> examples, const EncodeFn& encode,
                                    const PromptOptions& options, ThreadPool& pool);

// The prompt alone, for generation: at most max_length tokens, a longer context shortened at its end (or the row cut at
// max_length under Truncation::right). A plain text is its own prompt, of which the last max_length tokens remain.
// Throws UsageError where the question alone exceeds max_length.
std::vector<int32_t> encode_prompt(const Example& example, const EncodeFn& encode, const PromptOptions& options);

}  // namespace tessera
