// The text of a list of ids that grows.
#pragma once

#include <string>
#include <vector>

#include "tessera/data/tokenizer.h"

namespace tessera {

// Returns a text in parts, each as soon as no further id can change it. The parts contain only complete characters.
// Joined, they equal Tokenizer::decode() of all ids. With some decoders (see Decoder::grows_by_token), the only part is
// the complete text.
class TextStream {
 public:
  // The tokenizer must outlive the stream.
  TextStream(const Tokenizer& tokenizer, bool skip_special);
  // The part that becomes certain with this id; often empty.
  std::string add(int32_t id);
  // The rest, after the last id.
  std::string finish();

 private:
  std::string rest_of(const std::string& text);

  const Tokenizer& tokenizer_;
  const bool skip_special_, byte_level_, grows_;
  std::string bytes_;         // byte-level: the beginning of a character
  std::vector<int32_t> ids_;  // other decoders: all ids
  size_t num_returned_ = 0;   // other decoders: bytes of their text
};

}  // namespace tessera
