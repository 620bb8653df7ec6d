#include "tessera/data/tokenizer_added.h"

#include <algorithm>

#include "tessera/data/tokenizer_text.h"
#include "tessera/data/unicode.h"

namespace tessera {

namespace {

uint64_t edge(uint64_t node, char byte) {
  return node << 8 | static_cast<uint8_t>(byte);
}

bool word_ends_at(std::string_view text, size_t at) {
  return at > 0 && is_word_character(code_point_before(text, at).code);
}

bool word_begins_at(std::string_view text, size_t at) {
  return at < text.size() && is_word_character(code_point_at(text, at).code);
}

size_t skip_space_left(std::string_view text, size_t at) {
  while (at > 0) {
    const CodePoint c = code_point_before(text, at);
    if (!is_white_space(c.code)) break;
    at -= c.num_bytes;
  }
  return at;
}

size_t skip_space_right(std::string_view text, size_t at) {
  while (at < text.size()) {
    const CodePoint c = code_point_at(text, at);
    if (!is_white_space(c.code)) break;
    at += c.num_bytes;
  }
  return at;
}

}  // namespace

bool AddedTokenFinder::add(std::string_view form, const AddedToken& token, int32_t id) {
  uint64_t node = 0;
  for (const char byte : form) {
    if (const uint64_t* next = edges_.find(edge(node, byte))) {
      node = *next;
      continue;
    }
    edges_.set(edge(node, byte), ends_.size());
    node = ends_.size();
    ends_.push_back(-1);
  }
  if (ends_[node] >= 0) return false;
  ends_[node] = static_cast<int32_t>(patterns_.size());
  patterns_.push_back({id, token.single_word, token.lstrip, token.rstrip});
  first_bytes_[static_cast<uint8_t>(form[0])] = true;
  return true;
}

const AddedTokenFinder::Pattern* AddedTokenFinder::longest_at(std::string_view text, size_t at, size_t& end) const {
  const Pattern* longest = nullptr;
  uint64_t node = 0;
  for (size_t i = at; i < text.size(); ++i) {
    const uint64_t* next = edges_.find(edge(node, text[i]));
    if (!next) break;
    node = *next;
    if (ends_[node] < 0) continue;
    longest = &patterns_[static_cast<size_t>(ends_[node])];
    end = i + 1;
  }
  return longest;
}

void AddedTokenFinder::find(std::string_view text, std::vector<Part>& parts) const {
  size_t done = 0;  // the parts found so far cover the bytes [0, done)
  for (size_t at = 0; !patterns_.empty() && at < text.size();) {
    size_t end = at + 1;
    const Pattern* pattern = first_bytes_[static_cast<uint8_t>(text[at])] ? longest_at(text, at, end) : nullptr;
    size_t begin = at;
    at = end;
    if (!pattern) continue;
    if (pattern->single_word && (word_ends_at(text, begin) || word_begins_at(text, end))) continue;
    if (pattern->lstrip) begin = std::max(skip_space_left(text, begin), done);
    if (pattern->rstrip) end = skip_space_right(text, end);
    if (done < begin) parts.push_back({done, begin, -1});
    parts.push_back({begin, end, pattern->id});
    done = end;
  }
  if (done < text.size()) parts.push_back({done, text.size(), -1});
}

}  // namespace tessera
