#include "tessera/data/text_stream.h"

#include <utility>

#include "tessera/base/error.h"
#include "tessera/data/tokenizer_state.h"

namespace tessera {

TextStream::TextStream(const Tokenizer& tokenizer, bool skip_special, std::vector<std::string> stops)
    : tokenizer_(tokenizer),
      skip_special_(skip_special),
      byte_level_(tokenizer.state_->decoder.is_byte_level()),
      grows_(byte_level_ || tokenizer.state_->decoder.grows_by_token()),
      cutter_(std::move(stops)) {}

std::string TextStream::add(int32_t id) {
  return cutter_.add(decoded(id));
}

std::string TextStream::decoded(int32_t id) {
  const Tokenizer::State& state = *tokenizer_.state_;
  if (state.omits(id, skip_special_)) return "";
  if (byte_level_) {
    std::string text;
    bytes_ += state.tokens[static_cast<size_t>(id)];
    move_repaired_utf8(text, bytes_);
    return text;
  }
  ids_.push_back(id);
  if (!grows_ || state.decoder.is_part(state.tokens[static_cast<size_t>(id)])) return "";
  // Decodes all ids again, so the time to decode a text of N tokens grows with N². Up to some thousands of tokens,
  // decoding takes little time compared with the model.
  return rest_of(tokenizer_.decode(ids_, skip_special_));
}

std::string TextStream::finish() {
  std::string rest;
  if (byte_level_) {
    append_repaired_utf8(rest, std::exchange(bytes_, ""));
  } else {
    rest = rest_of(tokenizer_.decode(ids_, skip_special_));
  }
  std::string text = cutter_.add(rest);
  return text + cutter_.finish();
}

std::string TextStream::rest_of(const std::string& text) {
  TESSERA_ASSERT(num_returned_ <= text.size());
  return text.substr(std::exchange(num_returned_, text.size()));
}

}  // namespace tessera
