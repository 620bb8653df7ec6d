// Decodes a growing list of ids, part by part.
#pragma once

#include <string>
#include <vector>

#include "tessera/data/tokenizer.h"

namespace tessera {

// Returns a text in parts. A part has only complete characters. It is returned as soon as no later id can change it.
// The joined parts equal Tokenizer::decode() of all ids. If both Decoder::is_byte_level() and
// Decoder::grows_by_token() are false, add() returns nothing, and finish() returns the complete text.
class TextStream {
 public:
  // The tokenizer must outlive the stream.
  TextStream(const Tokenizer& tokenizer, bool skip_special);
  // The part of the text that becomes final with this id; often empty.
  std::string add(int32_t id);
  // The rest of the text. Call it after the last id.
  std::string finish();

 private:
  std::string rest_of(const std::string& text);

  const Tokenizer& tokenizer_;
  const bool skip_special_, byte_level_, grows_;
  std::string bytes_;         // byte-level decoder: the first bytes of an incomplete character
  std::vector<int32_t> ids_;  // other decoders: all ids that are not omitted
  size_t num_returned_ = 0;   // other decoders: bytes of the text that were returned
};

}  // namespace tessera
