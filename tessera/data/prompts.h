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
  separate,    // P alone; the ids of "{answer}" are laid as labels over its last positions (see encode_sample)
};

// What gives way when a sample is longer than max_length.
enum class Truncation {
  context,  // the context is shortened by tokens, so that question and answer survive
  right,    // the row is cut at max_length, whatever is lost, as transformers does
};

struct PromptOptions {
  Objective objective = Objective::completion;
  Truncation truncation = Truncation::context;
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

// The sample of an example.
//
// Prompt and answer are encoded apart: for byte-level BPE whose regular expression starts a new piece at a space
// before a letter, and never joins a colon to the space behind it (BLOOM, GPT-2, Llama 3, Qwen), the ids are those of
// the whole text "… Answer: {answer}". The same holds for the places at which the prompt is cut into question, context
// and the word "Answer:" when the context has to be shortened; a prompt that fits is encoded in one piece.
//
// A context shortened around its answer keeps a window of its tokens with the answer in the middle, or as near to it as
// the context's ends allow; an answer longer than the window is cut evenly at both sides of the context's copy. A plain
// text is cut at max_length under either truncation, its end-of-sequence token then being lost.
//
// Objective::separate: unshifted labels over the prompt's tokens, the answer's last one on the prompt's last position
// (of an answer longer than the prompt the end remains); then the shift of the model, by which position t predicts the
// label of position t + 1. It is what becomes of prompts and answers that are encoded apart, each padded on the left
// to one length, and then taken as inputs and labels; so the answer has no space before it.
//
// Throws UsageError where question and answer alone exceed max_length under Truncation::context, and for a plain text
// under an objective other than causal_lm.
Sample encode_sample(const Example& example, const EncodeFn& encode, const PromptOptions& options);

// The samples of many examples in their order, encoded on the threads of the pool.
std::vector<Sample> encode_samples(std::span<const Example> examples, const EncodeFn& encode,
                                   const PromptOptions& options, ThreadPool& pool);

// The prompt alone, for generation: at most max_length tokens, a longer context shortened at its end (or the row cut at
// max_length under Truncation::right). A plain text is its own prompt, of which the last max_length tokens remain.
// Throws UsageError where the question alone exceeds max_length.
std::vector<int32_t> encode_prompt(const Example& example, const EncodeFn& encode, const PromptOptions& options);

}  // namespace tessera
