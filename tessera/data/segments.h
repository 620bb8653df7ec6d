// The parts of a sample. Every kind of example becomes a list of segments; what carries loss, and what is removed if a
// sample is too long, are rules over segments.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tessera/data/examples.h"
#include "tessera/data/tokenizer.h"

namespace tessera {

// Encodes text to token ids, as Tokenizer::encode_at does. Several threads may call it at the same time.
using EncodeFn = std::function<std::vector<int32_t>(TextPlace, std::string_view)>;

struct ByteRange {
  int64_t begin = 0, end = 0;
};

struct Segment {
  // A text, or tokens that stand for no text, such as the end-of-sequence token.
  std::variant<std::string, std::vector<int32_t>> content;
  bool is_answer = false;  // what the model learns to produce, in contrast to the prompt
  // This text and the text before it are one text for the tokenizer, as long as nothing is cut.
  bool joins = false;
  bool may_be_cut = false;
  // If the segment is cut: the bytes of its text in the middle of what is kept. Empty: the beginning is kept.
  std::optional<ByteRange> middle{};
};

// Prompt and answer of a question or a completion, or a text; not for a conversation. The answer of a question is
// `answer`; an empty answer has no segment. The end-of-sequence token is not included.
std::vector<Segment> segments_of(const Example& example, const std::string& answer);

// "Question: {question} Context: {context} Answer:", or "Question: {question} Answer:" if the context is empty.
std::string prompt_text(std::string_view question, std::string_view context);
// The text of the prompt's segments of a question or a completion.
std::string prompt_text(const Example& example);

// The tokens of segments.
struct EncodedSegments {
  std::vector<int32_t> ids;
  std::vector<char> is_answer;  // of each token
  int64_t num_tokens = 0;       // before cutting
  int64_t num_least = 0;  // tokens without the segment that may be cut; set only if there were more than max_length
  bool fits = true;
};

// Encodes the segments. If they have more than max_length tokens, removes tokens of the segment that may be cut.
// Without such a segment, or if even its removal is not enough, the result does not fit. max_length 0: cuts nothing.
//
// Segments that join are encoded as one text; if one of them is cut, they are encoded one by one. The ids are the same
// if the tokenizer has two properties. It starts a new piece at a space before a letter, and it never joins a colon
// with the space after it. The tokenizers of BLOOM, GPT-2, Llama 2 and 3, Mistral and Qwen have both properties.
//
// A segment that is cut around its middle keeps a window of its tokens. The middle is as near to the middle of the
// window as the ends of the text allow. If the middle is longer than the window, the window keeps the middle of it.
EncodedSegments encode_segments(std::span<const Segment> segments, const EncodeFn& encode, int64_t max_length);

}  // namespace tessera
