#include "tessera/data/text.h"

#include <utf8proc.h>

#include <algorithm>

#include "tessera/base/error.h"

namespace tessera {

namespace {

bool continues(char c) {
  return (static_cast<unsigned char>(c) & 0xC0) == 0x80;
}

}  // namespace

size_t find_invalid_utf8(std::string_view text) {
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  for (size_t i = 0; i < text.size();) {
    if (bytes[i] < 0x80) {
      ++i;
      continue;
    }
    utf8proc_int32_t code_point;
    const size_t left = std::min<size_t>(text.size() - i, 4);
    const utf8proc_ssize_t length = utf8proc_iterate(bytes + i, static_cast<utf8proc_ssize_t>(left), &code_point);
    if (length < 0) return i;
    i += static_cast<size_t>(length);
  }
  return std::string_view::npos;
}

CodePoints::CodePoints(std::string_view text) : text_(text) {
  int64_t count = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (continues(text[i])) continue;
    if (count++ % kStride == 0) marks_.push_back(i);
  }
}

size_t CodePoints::byte_offset(int64_t index) const {
  TESSERA_ASSERT(index >= 0);
  if (static_cast<size_t>(index / kStride) >= marks_.size()) return text_.size();
  size_t offset = marks_[static_cast<size_t>(index / kStride)];
  for (int64_t left = index % kStride; left > 0 && offset < text_.size(); --left) {
    do ++offset;
    while (offset < text_.size() && continues(text_[offset]));
  }
  return offset;
}

size_t nearest_occurrence(std::string_view text, std::string_view needle, size_t wanted) {
  TESSERA_ASSERT(!needle.empty());
  if (needle.size() > text.size()) return std::string_view::npos;
  // The Knuth-Morris-Pratt search. border[i] belongs to the first i + 1 bytes of the needle: it is the length of their
  // longest proper prefix that is also their suffix.
  std::vector<size_t> border(needle.size(), 0);
  for (size_t i = 1, k = 0; i < needle.size(); ++i) {
    while (k > 0 && needle[i] != needle[k]) k = border[k - 1];
    if (needle[i] == needle[k]) ++k;
    border[i] = k;
  }
  const auto distance = [&](size_t at) { return at > wanted ? at - wanted : wanted - at; };
  size_t best = std::string_view::npos;
  for (size_t i = 0, k = 0; i < text.size(); ++i) {
    while (k > 0 && text[i] != needle[k]) k = border[k - 1];
    if (text[i] == needle[k]) ++k;
    if (k < needle.size()) continue;
    const size_t at = i + 1 - k;
    if (best != std::string_view::npos && distance(at) >= distance(best)) break;  // later occurrences are farther away
    best = at;
    k = border[k - 1];
  }
  return best;
}

}  // namespace tessera
