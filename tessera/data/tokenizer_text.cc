#include "tessera/data/tokenizer_text.h"

#include <utf8proc.h>

#include <cstdlib>
#include <cstring>
#include <new>

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
  bool valid;        // if false, num_bytes is the maximal subpart to replace
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

void append_normal_form(std::string& out, std::string_view text, NormalForm form) {
  utf8proc_uint8_t* mapped = nullptr;
  const utf8proc_ssize_t size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()),
                   &mapped, static_cast<utf8proc_option_t>(options_of(form)));
  if (size == UTF8PROC_ERROR_NOMEM) throw std::bad_alloc();
  TESSERA_ASSERT(size >= 0);
  out.append(reinterpret_cast<const char*>(mapped), static_cast<size_t>(size));
  std::free(mapped);
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
  // A newer character is a starter that composes with nothing, so the text before and behind it is independent of it.
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
  // ASCII is its own normal form. Characters below U+0300 are composed.
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
