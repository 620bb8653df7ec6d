// Decodes a growing list of ids, part by part.
#pragma once

#include <string>
#include <vector>

#include "tessera/data/stop_cutter.h"
#include "tessera/data/tokenizer.h"

namespace tessera {

// Returns a text in parts. A part has only complete characters, and is returned as soon as no later id can change it.
// The joined parts equal Tokenizer::decode() of all ids. With some decoders, a later id may change any part of the
// text (Decoder::is_byte_level() and Decoder::grows_by_token() are both false). Then add() returns an empty text, and
// finish() returns the complete text. A stop string ends the text before it.
class TextStream {
 public:
  // The tokenizer must outlive the stream. `skip_special`: the text omits special tokens.
  TextStream(const Tokenizer& tokenizer, bool skip_special, std::vector<std::string> stops = {});
  // The part of the text that cannot change any more after this id; often empty.
  std::string add(int32_t id);
  // The rest of the text. Call it after the last id.
  std::string finish();
  // Whether a stop string has ended the text. Later ids do not matter.
  bool has_stopped() const { return cutter_.has_stopped(); }

 private:
  std::string decoded(int32_t id);
  std::string rest_of(const std::string& text);

  const Tokenizer& tokenizer_;
  const bool skip_special_, byte_level_, grows_;
  std::string bytes_;         // byte-level decoder: the first bytes of an incomplete character
  std::vector<int32_t> ids_;  // other decoders: the ids so far, without those that the text omits
  size_t num_returned_ = 0;   // other decoders: number of bytes that were returned
  StopCutter cutter_;
};

}  // namespace tessera
