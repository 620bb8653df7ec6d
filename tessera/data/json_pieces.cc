#include "tessera/data/json_pieces.h"

#include <algorithm>
#include <string>

namespace tessera {

namespace {

// A position in a JSON text. Every function that returns false leaves the position undefined.
class Cursor {
 public:
  explicit Cursor(const JsonPiece& piece) : text_(piece.text), line_(piece.line), line_begin_(1 - piece.column) {}

  bool at_end() const { return at_ == text_.size(); }
  void skip_space() {
    while (!at_end() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\r' || text_[at_] == '\t')) ++at_;
  }
  // Skips white space, and then this byte.
  bool take(char wanted) {
    skip_space();
    if (at_end() || text_[at_] != wanted) return false;
    ++at_;
    return true;
  }
  bool take_key(std::string_view& key) {
    skip_space();
    const size_t begin = at_ + 1;
    if (!take_string()) return false;
    key = text_.substr(begin, at_ - 1 - begin);
    return take(':');
  }
  bool take_value(JsonPiece& piece) {
    skip_space();
    const size_t begin = at_;
    if (!skip_value()) return false;
    const std::string_view passed = text_.substr(counted_, begin - counted_);
    if (const auto ends = std::count(passed.begin(), passed.end(), '\n'); ends > 0) {
      line_ += ends;
      line_begin_ = static_cast<int64_t>(counted_ + passed.rfind('\n') + 1);
    }
    counted_ = begin;
    piece = {text_.substr(begin, at_ - begin), line_, static_cast<int64_t>(begin) - line_begin_ + 1};
    return true;
  }

 private:
  bool take_string() {
    if (at_end() || text_[at_] != '"') return false;
    for (++at_; at_ < text_.size(); ++at_) {
      if (text_[at_] == '"') return ++at_, true;
      if (text_[at_] == '\\') ++at_;
    }
    return false;
  }
  // A number or a word. Any of these bytes may be in it.
  bool take_scalar() {
    const size_t begin = at_;
    for (; !at_end(); ++at_) {
      const char c = text_[at_];
      const bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
      if (!is_letter && !(c >= '0' && c <= '9') && c != '-' && c != '+' && c != '.') break;
    }
    return at_ > begin;
  }
  // Not recursive, because a hostile text may be nested very deeply.
  bool skip_value() {
    std::string closers;  // the brackets that must close the open arrays and objects
    std::string_view key;
    for (;;) {
      skip_space();
      if (at_end()) return false;
      const char c = text_[at_];
      if (c == '{' || c == '[') {
        const char closer = c == '{' ? '}' : ']';
        ++at_;
        if (!take(closer)) {
          closers.push_back(closer);
          if (c == '{' && !take_key(key)) return false;
          continue;
        }
      } else if (!(c == '"' ? take_string() : take_scalar())) {
        return false;
      }
      // A value has ended. Closes arrays and objects, up to the next value.
      for (;;) {
        if (closers.empty()) return true;
        if (take(closers.back())) {
          closers.pop_back();
          continue;
        }
        if (!take(',') || (closers.back() == '}' && !take_key(key))) return false;
        break;
      }
    }
  }

  std::string_view text_;
  size_t at_ = 0, counted_ = 0;
  // The line of byte counted_, and the position of the first byte of this line. This position is negative if the line
  // begins before the text.
  int64_t line_, line_begin_;
};

// Calls take() at each element or member between the brackets. Returns false if the structure is not valid.
template <typename Take>
bool for_each_inside(Cursor& cursor, char opener, char closer, const Take& take) {
  if (!cursor.take(opener)) return false;
  if (!cursor.take(closer)) {
    do {
      if (!take()) return false;
    } while (cursor.take(','));
    if (!cursor.take(closer)) return false;
  }
  cursor.skip_space();
  return cursor.at_end();
}

}  // namespace

std::optional<std::vector<JsonPiece>> json_elements(const JsonPiece& array) {
  Cursor cursor(array);
  std::vector<JsonPiece> elements;
  const bool valid = for_each_inside(cursor, '[', ']', [&] { return cursor.take_value(elements.emplace_back()); });
  return valid ? std::optional(std::move(elements)) : std::nullopt;
}

std::optional<std::vector<JsonMember>> json_members(const JsonPiece& object) {
  Cursor cursor(object);
  std::vector<JsonMember> members;
  const bool valid = for_each_inside(cursor, '{', '}', [&] {
    JsonMember& member = members.emplace_back();
    return cursor.take_key(member.key) && cursor.take_value(member.value);
  });
  return valid ? std::optional(std::move(members)) : std::nullopt;
}

}  // namespace tessera
