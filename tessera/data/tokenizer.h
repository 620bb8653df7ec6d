// Text to token ids and back, as the model's tokenizer.json says.
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

// A byte-level BPE tokenizer (BLOOM, GPT-2, Llama 3, Qwen2, ...). Ids and texts equal those of Hugging Face's
// `tokenizers` (0.23) with add_special_tokens=False: no BOS or EOS that a post_processor would add, no truncation or
// padding. Unicode properties in split patterns and normal forms are those of the installed Oniguruma and utf8proc;
// characters assigned in later versions of Unicode can split otherwise.
//
// All const members may be called by several threads at once.
class Tokenizer {
 public:
  // InputError, with the path and the key at fault, if the file cannot be read or is not such a tokenizer.
  static Tokenizer load(const std::filesystem::path& tokenizer_json);
  // The same from the text of a tokenizer.json; `where` names it in errors.
  static Tokenizer from_json_text(std::string_view text, const std::string& where);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // The ids of a text. Bytes that are not UTF-8 count as U+FFFD, one for every maximal invalid subpart (what Python
  // gives for errors="replace"). InputError if a split pattern of the file needs too many steps on this text.
  std::vector<int32_t> encode(std::string_view text) const;

  // The text of the ids. Bytes that do not add up to UTF-8 become U+FFFD as above; ids without a token give nothing.
  // skip_special leaves out the special added tokens.
  std::string decode(std::span<const int32_t> ids, bool skip_special) const;

  // The largest id plus one: the least number of rows of an embedding.
  int32_t vocab_size() const;
  // The id of an added token or of a vocabulary entry in byte symbols ("Ġthe").
  std::optional<int32_t> id_of(std::string_view token) const;
  // Whether the id is that of a special added token, which decode() can leave out.
  bool is_special(int32_t id) const;
  // Keys of its file that have a value and are not used: "truncation", "padding".
  const std::vector<std::string>& unused_keys() const;
  // The text that this tokenizer was made of, byte for byte.
  const std::string& json_text() const;

 private:
  struct State;
  explicit Tokenizer(std::unique_ptr<const State> state);
  std::unique_ptr<const State> state_;
};

}  // namespace tessera
