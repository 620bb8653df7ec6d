#include "tessera/data/tokenizer_decode.h"

#include <algorithm>
#include <optional>

#include "tessera/base/text.h"
#include "tessera/data/bpe.h"

namespace tessera {

namespace {

using Tokens = std::vector<std::string>;

std::string joined(const Tokens& tokens) {
  std::string text;
  for (const std::string& token : tokens) text += token;
  return text;
}

// Returns the byte that a token like "<0x41>" stands for, or nullopt for other tokens. "<0x+1>" stands for the byte 1,
// as in the Rust library `tokenizers`, because Rust's parser of numbers accepts a plus sign.
std::optional<char> fallback_byte(const std::string& token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  const auto value_of = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
  };
  const int high = token[3] == '+' ? 0 : value_of(token[3]), low = value_of(token[4]);
  if (high < 0 || low < 0) return std::nullopt;
  return static_cast<char>(high * 16 + low);
}

Tokens with_fallback_bytes(Tokens tokens) {
  Tokens result;
  std::string bytes;
  const auto finish = [&] {
    if (is_utf8(bytes)) {
      if (!bytes.empty()) result.push_back(bytes);
    } else {
      result.insert(result.end(), bytes.size(), "\uFFFD");
    }
    bytes.clear();
  };
  for (std::string& token : tokens) {
    if (const auto byte = fallback_byte(token)) {
      bytes += *byte;
      continue;
    }
    finish();
    result.push_back(std::move(token));
  }
  finish();
  return result;
}

void strip(std::string& token, const DecoderStep& step) {
  const std::string& character = step.character;
  std::string_view rest = token;
  for (size_t i = 0; i < step.start && rest.starts_with(character); ++i) rest.remove_prefix(character.size());
  for (size_t i = 0; i < step.stop && rest.ends_with(character); ++i) rest.remove_suffix(character.size());
  token = std::string(rest);
}

void replace_metaspace(std::string& token, bool is_first, const DecoderStep& step) {
  std::string result;
  for (size_t at = 0; at < token.size();) {
    const size_t size = code_point_at(token, at).num_bytes;
    if (token.compare(at, size, step.character) != 0) {
      result.append(token, at, size);
    } else if (!is_first || !step.drops_first) {
      result += ' ';
    }
    at += size;
  }
  token = std::move(result);
}

}  // namespace

ByteSymbols::ByteSymbols() {
  const auto codes = tessera::byte_symbols();
  for (size_t byte = 0; byte < codes.size(); ++byte) {
    append_code_point(symbols_[byte], codes[byte]);
    if (codes[byte] >= bytes_.size()) bytes_.resize(codes[byte] + 1, -1);
    bytes_[codes[byte]] = static_cast<int16_t>(byte);
  }
}

std::string ByteSymbols::symbols(std::string_view bytes) const {
  std::string result;
  for (const char c : bytes) result += symbols_[static_cast<uint8_t>(c)];
  return result;
}

std::string ByteSymbols::bytes(const std::string& token) const {
  std::string result;
  for (size_t at = 0; at < token.size();) {
    const CodePoint c = code_point_at(token, at);
    if (c.code >= bytes_.size() || bytes_[c.code] < 0) return token;
    result += static_cast<char>(bytes_[c.code]);
    at += c.num_bytes;
  }
  return result;
}

Decoder::Decoder(const std::vector<DecoderStep>& steps) {
  for (const DecoderStep& step : steps) {
    const bool replaces = step.kind == DecoderStep::Kind::replace;
    steps_.push_back({step, replaces ? std::make_unique<const Replacer>(step.replace) : nullptr});
  }
}

bool Decoder::is_byte_level() const {
  return steps_.size() == 1 && steps_[0].step.kind == DecoderStep::Kind::byte_level;
}

bool Decoder::grows_by_token() const {
  using Kind = DecoderStep::Kind;
  bool fused = false, has_metaspace = false;
  for (const auto& [step, replacer] : steps_) {
    switch (step.kind) {
      case Kind::byte_level:
        return false;
      case Kind::replace:
        if (fused) return false;  // a match may begin in one token and end in a later one
        break;
      case Kind::byte_fallback:
        if (fused || has_metaspace) return false;
        break;
      case Kind::fuse:
        fused = true;
        break;
      case Kind::strip:
        if (fused && step.stop > 0) return false;
        break;
      case Kind::metaspace:
        has_metaspace = true;
        break;
    }
  }
  return true;
}

bool Decoder::is_part(std::string token) const {
  for (const auto& [step, replacer] : steps_) {
    if (step.kind == DecoderStep::Kind::replace) token = (*replacer)(token);
    if (step.kind == DecoderStep::Kind::strip) strip(token, step);
    if (step.kind == DecoderStep::Kind::byte_fallback) return fallback_byte(token).has_value();
  }
  return false;
}

std::string Decoder::bytes_of(std::string token) const {
  for (const auto& [step, replacer] : steps_) {
    switch (step.kind) {
      case DecoderStep::Kind::byte_level:
        return byte_symbols_.bytes(token);
      case DecoderStep::Kind::replace:
        token = (*replacer)(token);
        break;
      case DecoderStep::Kind::byte_fallback:
        if (const auto byte = fallback_byte(token)) return std::string(1, *byte);
        break;
      case DecoderStep::Kind::fuse:
        return token;
      case DecoderStep::Kind::strip:
        strip(token, step);
        break;
      case DecoderStep::Kind::metaspace:
        replace_metaspace(token, false, step);
        break;
    }
  }
  return token;
}

std::string Decoder::decode(Tokens tokens) const {
  for (const auto& [step, replacer] : steps_) {
    switch (step.kind) {
      case DecoderStep::Kind::byte_level: {
        std::string bytes, text;
        for (const std::string& token : tokens) bytes += byte_symbols_.bytes(token);
        append_repaired_utf8(text, bytes);
        tokens.assign(1, text);
        break;
      }
      case DecoderStep::Kind::replace:
        for (std::string& token : tokens) token = (*replacer)(token);
        break;
      case DecoderStep::Kind::byte_fallback:
        tokens = with_fallback_bytes(std::move(tokens));
        break;
      case DecoderStep::Kind::fuse:
        tokens.assign(1, joined(tokens));
        break;
      case DecoderStep::Kind::strip:
        for (std::string& token : tokens) strip(token, step);
        break;
      case DecoderStep::Kind::metaspace:
        for (size_t i = 0; i < tokens.size(); ++i) replace_metaspace(tokens[i], i == 0, step);
        break;
    }
  }
  return joined(tokens);
}

}  // namespace tessera
