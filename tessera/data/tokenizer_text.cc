#include "tessera/data/tokenizer_text.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/data/unicode.h"

namespace tessera {

namespace {

uint8_t byte_at(std::string_view text, size_t i) {
  return static_cast<uint8_t>(text[i]);
}

bool is_continuation(uint8_t byte) {
  return (byte & 0xC0) == 0x80;
}

struct Sequence {
  size_t num_bytes;  // at least 1
  bool valid;        // if false, one U+FFFD replaces these bytes (Unicode calls them a maximal subpart)
};

// The sequence that starts at bytes[at]. The bounds of the second byte exclude overlong forms, surrogates, and code
// points beyond U+10FFFF (Unicode 15, table 3-7).
Sequence sequence_at(std::string_view bytes, size_t at) {
  const uint8_t lead = byte_at(bytes, at);
  if (lead < 0x80) return {1, true};
  if (lead < 0xC2 || lead > 0xF4) return {1, false};
  const size_t needed = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  const uint8_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const uint8_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  if (at + 1 >= bytes.size() || byte_at(bytes, at + 1) < low || byte_at(bytes, at + 1) > high) return {1, false};
  size_t have = 2;
  while (have < needed && at + have < bytes.size() && is_continuation(byte_at(bytes, at + have))) ++have;
  return {have, have == needed};
}

size_t ascii_prefix(std::string_view bytes, size_t at) {
  uint64_t word;
  while (at + sizeof word <= bytes.size()) {
    std::memcpy(&word, bytes.data() + at, sizeof word);
    if (word & 0x8080808080808080ull) break;
    at += sizeof word;
  }
  while (at < bytes.size() && byte_at(bytes, at) < 0x80) ++at;
  return at;
}

int options_of(NormalForm form) {
  switch (form) {
    case NormalForm::nfc:
      return UTF8PROC_STABLE | UTF8PROC_COMPOSE;
    case NormalForm::nfd:
      return UTF8PROC_STABLE | UTF8PROC_DECOMPOSE;
    case NormalForm::nfkc:
      return UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT;
    case NormalForm::nfkd:
      return UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT;
  }
  return 0;
}

// Decomposes each code point, sorts adjacent combining marks by their combining class, and composes again if the form
// requires it. utf8proc_map() gives the same result, but sorts in quadratic time.
void append_normal_form(std::string& out, std::string_view text, NormalForm form) {
  constexpr utf8proc_ssize_t kMostParts = 32;  // a code point decomposes into at most 18 parts
  const auto options = static_cast<utf8proc_option_t>(options_of(form));
  std::vector<utf8proc_int32_t> points;
  points.reserve(text.size() + kMostParts);
  const auto* next = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  for (auto left = static_cast<utf8proc_ssize_t>(text.size()); left > 0;) {
    utf8proc_int32_t point = 0;
    const utf8proc_ssize_t bytes = utf8proc_iterate(next, left, &point);
    TESSERA_ASSERT(bytes > 0);
    next += bytes;
    left -= bytes;
    utf8proc_int32_t parts[kMostParts];
    const utf8proc_ssize_t count = utf8proc_decompose_char(
        point, parts, kMostParts, static_cast<utf8proc_option_t>((options & ~UTF8PROC_COMPOSE) | UTF8PROC_DECOMPOSE),
        nullptr);
    TESSERA_ASSERT(count >= 0 && count <= kMostParts);
    points.insert(points.end(), parts, parts + count);
  }
  const auto class_of = [](utf8proc_int32_t point) { return utf8proc_get_property(point)->combining_class; };
  for (auto mark = points.begin(); mark != points.end();) {
    mark = std::find_if(mark, points.end(), class_of);
    const auto end = std::find_if_not(mark, points.end(), class_of);
    std::ranges::stable_sort(mark, end, {}, class_of);
    mark = end;
  }
  auto size = static_cast<utf8proc_ssize_t>(points.size());
  if (options & UTF8PROC_COMPOSE) size = utf8proc_normalize_utf32(points.data(), size, options);
  TESSERA_ASSERT(size >= 0);
  for (utf8proc_ssize_t i = 0; i < size; ++i) {
    utf8proc_uint8_t bytes[4];
    out.append(reinterpret_cast<const char*>(bytes),
               static_cast<size_t>(utf8proc_encode_char(points[static_cast<size_t>(i)], bytes)));
  }
}

}  // namespace

bool is_utf8(std::string_view bytes) {
  for (size_t at = ascii_prefix(bytes, 0); at < bytes.size(); at = ascii_prefix(bytes, at)) {
    const Sequence sequence = sequence_at(bytes, at);
    if (!sequence.valid) return false;
    at += sequence.num_bytes;
  }
  return true;
}

void append_repaired_utf8(std::string& out, std::string_view bytes) {
  for (size_t at = 0; at < bytes.size();) {
    const Sequence sequence = sequence_at(bytes, at);
    out += sequence.valid ? bytes.substr(at, sequence.num_bytes) : std::string_view("\xEF\xBF\xBD");
    at += sequence.num_bytes;
  }
}

void move_repaired_utf8(std::string& out, std::string& bytes) {
  size_t at = 0;
  while (at < bytes.size()) {
    const Sequence sequence = sequence_at(bytes, at);
    const uint8_t lead = byte_at(bytes, at);
    const bool continues = !sequence.valid && at + sequence.num_bytes == bytes.size() && lead >= 0xC2 && lead <= 0xF4;
    if (continues) break;
    at += sequence.num_bytes;
  }
  append_repaired_utf8(out, std::string_view(bytes).substr(0, at));
  bytes.erase(0, at);
}

void append_code_point(std::string& out, char32_t code) {
  const auto put = [&](char32_t byte) { out += static_cast<char>(byte); };
  if (code < 0x80) return put(code);
  if (code < 0x800) {
    put(0xC0 | code >> 6);
  } else {
    if (code < 0x10000) {
      put(0xE0 | code >> 12);
    } else {
      put(0xF0 | code >> 18);
      put(0x80 | (code >> 12 & 0x3F));
    }
    put(0x80 | (code >> 6 & 0x3F));
  }
  put(0x80 | (code & 0x3F));
}

CodePoint code_point_before(std::string_view text, size_t end) {
  size_t at = end - 1;
  while (at > 0 && is_continuation(byte_at(text, at))) --at;
  return code_point_at(text, at);
}

std::string normalize(std::string_view text, NormalForm form) {
  std::string result;
  // The normalizers of `tokenizers` use Unicode 9. For them, a newer character (is_newly_normalized) has combining
  // class 0 and composes with nothing. This function therefore normalizes the text before it and the text after it
  // separately.
  size_t begin = 0;
  bool unchanged = true;
  const auto finish = [&](size_t end) {
    const std::string_view part = text.substr(begin, end - begin);
    if (unchanged) {
      result += part;
    } else {
      append_normal_form(result, part, form);
    }
  };
  // ASCII is its own normal form. NFC changes no character below U+0300.
  const char32_t first_changed = form == NormalForm::nfc ? 0x300 : 0x80;
  for (size_t at = ascii_prefix(text, 0); at < text.size(); at = ascii_prefix(text, at)) {
    const CodePoint c = code_point_at(text, at);
    if (c.code >= first_changed) unchanged = false;
    if (is_newly_normalized(c.code)) {
      finish(at);
      result += text.substr(at, c.num_bytes);
      begin = at + c.num_bytes;
      unchanged = true;
    }
    at += c.num_bytes;
  }
  finish(text.size());
  return result;
}

}  // namespace tessera
