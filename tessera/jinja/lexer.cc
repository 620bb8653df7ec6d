#include "tessera/jinja/lexer.h"

#include <algorithm>
#include <charconv>

#include "tessera/base/text.h"
#include "tessera/jinja/node.h"
#include "tessera/jinja/text.h"

namespace tessera::jinja {
namespace {

bool is_name_byte(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}

class Lexer {
 public:
  Lexer(std::string_view source, const std::string& where) : where_(where) {
    for (size_t i = 0; i < source.size(); ++i) {
      if (source[i] == '\r') {
        source_.push_back('\n');
        if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
      } else {
        source_.push_back(source[i]);
      }
    }
    if (!source_.empty() && source_.back() == '\n') source_.pop_back();
  }

  std::vector<Token> run() {
    while (at_ < source_.size()) root();
    add(Lexeme::end, "end of the template");
    return std::move(tokens_);
  }

 private:
  bool looks_at(std::string_view text) const { return source_.compare(at_, text.size(), text) == 0; }
  bool take(std::string_view text) {
    if (!looks_at(text)) return false;
    move_to(at_ + text.size());
    return true;
  }
  void move_to(size_t at) {
    line_ += static_cast<int>(
        std::count(source_.begin() + static_cast<ptrdiff_t>(at_), source_.begin() + static_cast<ptrdiff_t>(at), '\n'));
    at_ = at;
  }
  void skip_space() {
    const std::string_view rest = std::string_view(source_).substr(at_);
    move_to(source_.size() - strip(rest, std::nullopt, Sides::left).size());
  }
  Token& add(Lexeme kind, std::string text) { return tokens_.emplace_back(Token{kind, line_, std::move(text)}); }
  [[noreturn]] void fail(const std::string& what, const std::string& remedy = "") {
    refuse(where_, line_, what, remedy);
  }

  // The data before a tag at `end`. `sign` is the character after the tag's first two.
  void data(size_t end, char sign, bool is_variable) {
    std::string_view text = std::string_view(source_).substr(at_, end - at_);
    if (sign == '-') {
      text = strip(text, std::nullopt, Sides::right);
    } else if (sign != '+' && !is_variable) {
      const size_t line = text.rfind('\n') + 1;  // 0 without a line break
      if ((line > 0 || line_starts_) && strip(text.substr(line), std::nullopt, Sides::left).empty()) {
        text = text.substr(0, line);
      }
    }
    if (!text.empty()) add(Lexeme::data, std::string(text));
    move_to(end);
  }

  // The end of a block or comment; `tail` is "%}" or "#}". Returns false if it is not here.
  bool take_end(std::string_view tail) {
    const std::string minus = "-" + std::string(tail), plus = "+" + std::string(tail);
    if (take(minus)) {
      line_starts_ = at_ < source_.size() && is_space_at(at_) && last_space_is_newline();
      skip_space();
      return true;
    }
    line_starts_ = false;
    if (take(plus)) return true;
    if (!take(tail)) return false;
    line_starts_ = take("\n");
    return true;
  }
  bool is_space_at(size_t at) const {
    return strip(std::string_view(source_).substr(at, size_at(source_, at)), std::nullopt, Sides::left).empty();
  }
  bool last_space_is_newline() const {
    const std::string_view rest = std::string_view(source_).substr(at_);
    const size_t size = rest.size() - strip(rest, std::nullopt, Sides::left).size();
    return size > 0 && rest[size - 1] == '\n';
  }

  // Whether `{% raw %}` is at `at`; returns the offset behind the sign and the spaces and `word`, or npos.
  size_t after_word(size_t at, std::string_view word) const {
    at += 2;
    if (at < source_.size() && (source_[at] == '-' || source_[at] == '+')) ++at;
    const std::string_view rest = std::string_view(source_).substr(std::min(at, source_.size()));
    at = source_.size() - strip(rest, std::nullopt, Sides::left).size();
    if (source_.compare(at, word.size(), word) != 0) return std::string::npos;
    at += word.size();
    return source_.size() - strip(std::string_view(source_).substr(at), std::nullopt, Sides::left).size();
  }

  void root() {
    size_t tag = source_.find('{', at_);
    while (tag != std::string::npos && source_.compare(tag, 2, "{%") != 0 && source_.compare(tag, 2, "{{") != 0 &&
           source_.compare(tag, 2, "{#") != 0) {
      tag = source_.find('{', tag + 1);
    }
    if (tag == std::string::npos) {
      add(Lexeme::data, source_.substr(at_));
      move_to(source_.size());
      return;
    }
    const char kind = source_[tag + 1];
    const char sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
    if (kind == '%') {
      const size_t after = after_word(tag, "raw");
      if (after != std::string::npos &&
          (source_.compare(after, 2, "%}") == 0 || source_.compare(after, 3, "-%}") == 0)) {
        data(tag, sign, false);
        move_to(after);
        line_starts_ = false;
        if (take("-%}")) {
          line_starts_ = last_space_is_newline();
          skip_space();
        } else {
          take("%}");
        }
        raw();
        return;
      }
    }
    data(tag, sign, kind == '{');
    const int begin = line_;
    move_to(tag + (sign == '-' || sign == '+' ? 3 : 2));
    line_starts_ = false;
    if (kind == '#') {
      while (!take_end("#}")) {
        if (at_ >= source_.size()) refuse(where_, begin, "A comment has no end", "Write #}");
        move_to(at_ + 1);
      }
      return;
    }
    add(kind == '{' ? Lexeme::variable_begin : Lexeme::block_begin, kind == '{' ? "{{" : "{%");
    expression(kind == '{');
  }

  void raw() {
    const int begin = line_;
    for (size_t tag = source_.find("{%", at_); tag != std::string::npos; tag = source_.find("{%", tag + 1)) {
      const size_t after = after_word(tag, "endraw");
      if (after == std::string::npos) continue;
      if (source_.compare(after, 2, "%}") != 0 && source_.compare(after, 3, "-%}") != 0 &&
          source_.compare(after, 3, "+%}") != 0) {
        continue;
      }
      data(tag, source_[tag + 2], false);
      move_to(after);
      take_end("%}");
      return;
    }
    refuse(where_, begin, "A raw block has no end", "Write {% endraw %}");
  }

  void expression(bool is_variable) {
    std::string open;  // the brackets that are open
    while (at_ < source_.size()) {
      if (open.empty()) {
        if (is_variable) {
          if (take("-}}")) {
            add(Lexeme::variable_end, "}}");
            line_starts_ = last_space_is_newline();
            skip_space();
            return;
          }
          if (take("}}")) {
            add(Lexeme::variable_end, "}}");
            return;
          }
        } else if (take_end("%}")) {
          add(Lexeme::block_end, "%}");
          return;
        }
      }
      const char c = source_[at_];
      if (is_space_at(at_)) {
        skip_space();
      } else if (is_digit(c)) {
        number();
      } else if (is_name_byte(c)) {
        name();
      } else if (c == '\'' || c == '"') {
        literal(c);
      } else {
        op(open);
      }
    }
    fail("A tag has no end", is_variable ? "Write }}" : "Write %}");
  }

  void name() {
    size_t end = at_;
    while (end < source_.size() && is_name_byte(source_[end])) ++end;
    const std::string text = source_.substr(at_, end - at_);
    if (std::any_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) >= 0x80; })) {
      fail("The name " + text + " has letters that are not ASCII", "Rename it");
    }
    add(Lexeme::name, text);
    move_to(end);
  }

  // Digits of `base` with single `_` between them. Returns the end.
  size_t digits(size_t at, int base) const {
    const auto is_in_base = [&](size_t i) {
      if (i >= source_.size()) return false;
      const char c = source_[i];
      const int digit = is_digit(c)            ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : 99;
      return digit < base;
    };
    while (is_in_base(at) || (at < source_.size() && source_[at] == '_' && is_in_base(at + 1))) ++at;
    return at;
  }

  void number() {
    int base = 10;
    size_t begin = at_, end = digits(at_, 10);
    bool is_real = false;
    const char mark = at_ + 1 < source_.size() ? static_cast<char>(source_[at_ + 1] | 32) : '\0';
    if (source_[at_] == '0' && (mark == 'x' || mark == 'o' || mark == 'b')) {
      const int other = mark == 'x' ? 16 : mark == 'o' ? 8 : 2;
      if (digits(at_ + 2, other) > at_ + 2) {
        base = other;
        begin = at_ + 2;
        end = digits(begin, base);
      }
    } else if (at_ == 0 || source_[at_ - 1] != '.') {  // the second number of `a.0.5` is no fraction
      if (end + 1 < source_.size() && source_[end] == '.' && is_digit(source_[end + 1])) {
        end = digits(end + 1, 10);
        is_real = true;
      }
      if (end < source_.size() && (source_[end] | 32) == 'e') {
        const size_t power =
            end + 1 + (end + 1 < source_.size() && (source_[end + 1] == '+' || source_[end + 1] == '-'));
        if (power < source_.size() && is_digit(source_[power])) {
          end = digits(power, 10);
          is_real = true;
        }
      }
    }
    std::string text = source_.substr(begin, end - begin);
    std::erase(text, '_');
    if (!is_real && base == 10 && text[0] == '0' && text.find_first_not_of('0') != std::string::npos) {
      fail("The number " + text + " begins with 0", "Write it without the 0");
    }
    Token& token = add(is_real ? Lexeme::real : Lexeme::integer, text);
    const auto result = is_real ? std::from_chars(text.data(), text.data() + text.size(), token.real)
                                : std::from_chars(text.data(), text.data() + text.size(), token.integer, base);
    if (result.ec != std::errc()) fail("The number " + text + " is too large", "Write a smaller number");
    move_to(end);
  }

  void literal(char quote) {
    const int begin = line_;
    size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? size_t{2} : size_t{1};
    if (end >= source_.size()) refuse(where_, begin, "A text has no end", std::string("Write ") + quote);
    std::string out;
    for (size_t i = at_ + 1; i < end; ++i) {
      if (source_[i] != '\\') {
        out.push_back(source_[i]);
      } else {
        escape(++i, end, out);
      }
    }
    add(Lexeme::text, std::move(out));
    move_to(end + 1);
  }

  // The escape whose second character is at `i`. Leaves `i` at its last byte.
  void escape(size_t& i, size_t end, std::string& out) {
    constexpr std::string_view kLetters = "abfnrtv\\'\"\n", kMeanings = "\a\b\f\n\r\t\v\\'\"";
    const char c = source_[i];
    const size_t simple = kLetters.find(c);
    if (simple != std::string_view::npos) {
      out += kMeanings.substr(simple, 1);
      return;
    }
    uint32_t code = 0;
    if (c >= '0' && c <= '7') {
      const size_t first = i;
      for (; i < end && i < first + 3 && source_[i] >= '0' && source_[i] <= '7'; ++i) {
        code = code * 8 + static_cast<uint32_t>(source_[i] - '0');
      }
      --i;
    } else if (c == 'x' || c == 'u' || c == 'U') {
      const size_t count = c == 'x' ? 2 : c == 'u' ? 4 : 8;
      const char* first = source_.data() + i + 1;
      const auto result = std::from_chars(first, source_.data() + std::min(end, i + 1 + count), code, 16);
      if (result.ec != std::errc() || result.ptr != first + count) fail("A text has an incomplete escape");
      i += count;
    } else if (c == 'N') {
      fail("A text has the escape \\N", "Write the character itself");
    } else if (static_cast<unsigned char>(c) < 0x80) {
      out += {'\\', c};
      return;
    } else {  // Python first writes the character as an escape, and then the backslash escapes that escape
      const size_t size = size_at(source_, i);
      out += repr_escape(decode(std::string_view(source_).substr(i, size))[0]);
      i += size - 1;
      return;
    }
    if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) {
      fail("A text has an escape of a surrogate or of no character", "Write the character itself");
    }
    const auto point = static_cast<char32_t>(code);
    out += encode(std::u32string_view(&point, 1));
  }
  static std::string repr_escape(char32_t code) {
    std::string out = code < 0x100 ? "\\x" : code < 0x10000 ? "\\u" : "\\U";
    for (int shift = code < 0x100 ? 4 : code < 0x10000 ? 12 : 28; shift >= 0; shift -= 4) {
      out.push_back("0123456789abcdef"[(code >> shift) & 15]);
    }
    return out;
  }

  void op(std::string& open) {
    for (const std::string_view text : {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
                                        "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"}) {
      if (!looks_at(text)) continue;
      const char c = text[0];
      if (c == '(' || c == '[' || c == '{') open.push_back(c == '(' ? ')' : c == '[' ? ']' : '}');
      if (c == ')' || c == ']' || c == '}') {
        if (open.empty() || open.back() != c) fail("Unexpected " + std::string(text));
        open.pop_back();
      }
      add(Lexeme::op, std::string(text));
      move_to(at_ + text.size());
      return;
    }
    fail("Unexpected character " + source_.substr(at_, size_at(source_, at_)));
  }

  std::string source_;
  const std::string& where_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starts_ = true;  // the previous tag ended with a line break
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokens_of(std::string_view source, const std::string& where) {
  return Lexer(source, where).run();
}

}  // namespace tessera::jinja
