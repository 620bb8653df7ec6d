// Converts text to token ids and back, as defined by the model's tokenizer.json.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// The place of a text in a sample.
enum class TextPlace : uint8_t {
  start,    // it begins the sample: the ids that the post-processor puts before a text (BOS) come first
  written,  // it begins the sample, and has its special tokens (BOS) already, because a chat template wrote them
  inside,   // it continues another text: the tokenizer puts nothing before it, not even a space or "▁"
};

// A BPE tokenizer: byte-level (BLOOM, GPT-2, Llama 3, Qwen, ...) or of SentencePiece's style (Llama 2, Mistral). Ids
// and texts are the same as those of Hugging Face's library `tokenizers` (0.23), without truncation and padding.
// Character classes and normal forms follow the library (unicode.h).
//
// Several threads may call all const members at the same time.
class Tokenizer {
 public:
  // Throws InputError, with path and key, if the file cannot be read, or is not a supported BPE tokenizer.
  static Tokenizer load(const std::filesystem::path& tokenizer_json);
  // Like load(), but takes the text of a tokenizer.json. Errors name the text `where`.
  static Tokenizer from_json_text(std::string_view text, const std::string& where);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // The ids of a text, as the library gives them with add_special_tokens=False. Bytes that are not valid UTF-8 become
  // U+FFFD as with errors="replace" in Python. Throws InputError if a regular expression of the file needs too many
  // steps on this text, or if the text is too long.
  std::vector<int32_t> encode(std::string_view text) const;
  // Like encode(), but with add_special_tokens=True: includes the ids that the file's post_processor puts before and
  // after a text.
  std::vector<int32_t> encode_with_special(std::string_view text) const;
  // The ids of a text in a sample. They never contain the ids that a post-processor puts after a text (EOS), because
  // EOS must not come between a prompt and its answer.
  std::vector<int32_t> encode_at(TextPlace place, std::string_view text) const;

  // The text of the ids. Bytes that do not form UTF-8 become U+FFFD, as in the library. Ids without a token are
  // omitted. skip_special omits the special added tokens.
  std::string decode(std::span<const int32_t> ids, bool skip_special) const;

  // The bytes that a token represents inside a text. They may be a part of a character. Empty for an id without a
  // token.
  std::string bytes_of(int32_t id) const;

  // The largest id plus one: the minimum number of rows that an embedding needs.
  int32_t vocab_size() const;
  // The largest id of an ordinary token plus one. Added tokens are not ordinary tokens, even if the vocabulary contains
  // them.
  int32_t vocabulary_end() const;
  // The id of an added token, or of a vocabulary entry as the file writes it ("Ġthe", "▁the"). nullopt if there is
  // none.
  std::optional<int32_t> id_of(std::string_view token) const;
  // Whether the id is a special added token, which decode() can skip.
  bool is_special(int32_t id) const;
  // Whether the id is an ordinary token: a part of texts, not an added token. False for an id without a token.
  bool is_ordinary(int32_t id) const;
  // Keys of the file that have a value, but no effect: "truncation", "padding".
  const std::vector<std::string>& unused_keys() const;
  // The original text of this tokenizer, byte for byte.
  const std::string& json_text() const;

 private:
  friend class TextStream;
  struct State;
  explicit Tokenizer(std::unique_ptr<const State> state);
  std::unique_ptr<const State> state_;
};

}  // namespace tessera
