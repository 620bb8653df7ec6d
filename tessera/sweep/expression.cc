#include "tessera/sweep/expression.h"

#include <fmt/format.h>

#include <cctype>
#include <charconv>

#include "tessera/base/error.h"
#include "tessera/base/text.h"
#include "tessera/settings/setting.h"

namespace tessera {
namespace {

constexpr int kDeepest = 100;  // limit of nested parentheses and unary minus signs: bounds the recursion

bool begins_name(char c) {
  return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_';
}

// A recursive descent parser that computes the value while it parses.
class Evaluator {
 public:
  Evaluator(const std::string& text, const std::function<int64_t(const std::string&)>& value_of,
            const std::string& where)
      : text_(text), value_of_(value_of), where_(where) {}

  int64_t all() {
    const int64_t value = sum(0);
    if (next() != '\0' || at_ < text_.size()) expected("+, -, *, / or the end");
    return value;
  }

 private:
  int64_t sum(int depth) {
    int64_t value = product(depth);
    while (next() == '+' || next() == '-') {
      const char sign = text_[at_++];
      const int64_t right = product(depth);
      const bool overflows =
          sign == '+' ? __builtin_add_overflow(value, right, &value) : __builtin_sub_overflow(value, right, &value);
      if (overflows) too_large();
    }
    return value;
  }

  int64_t product(int depth) {
    int64_t value = factor(depth);
    while (next() == '*' || next() == '/') {
      const char sign = text_[at_++];
      const int64_t right = factor(depth);
      if (sign == '/') {
        value = divided(value, right);
      } else if (__builtin_mul_overflow(value, right, &value)) {
        too_large();
      }
    }
    return value;
  }

  int64_t divided(int64_t value, int64_t divisor) const {
    if (divisor == 0) fail(fmt::format("divides {} by zero", value));
    if (divisor == -1) {  // -2^63 / -1 overflows
      int64_t negated = 0;
      if (__builtin_sub_overflow(int64_t{0}, value, &negated)) too_large();
      return negated;
    }
    if (value % divisor != 0) {
      fail(fmt::format("{} / {} is not a whole number", value, divisor),
           "Multiply before you divide, or choose values whose quotient is a whole number");
    }
    return value / divisor;
  }

  int64_t factor(int depth) {
    if (depth > kDeepest) fail(fmt::format("is nested deeper than {} levels", kDeepest));
    const char c = next();
    if (is_digit(c)) return number();
    if (begins_name(c)) {
      const size_t begin = at_;
      while (at_ < text_.size() && (begins_name(text_[at_]) || is_digit(text_[at_]))) ++at_;
      return value_of_(text_.substr(begin, at_ - begin));
    }
    if (c == '-') {
      ++at_;
      return divided(factor(depth + 1), -1);
    }
    if (c != '(') expected("a whole number, a setting or (");
    ++at_;
    const int64_t value = sum(depth + 1);
    if (next() != ')') expected(")");
    ++at_;
    return value;
  }

  int64_t number() {
    int64_t value = 0;
    const char* const begin = text_.data() + at_;
    const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), value);
    if (error != std::errc()) too_large();
    at_ += static_cast<size_t>(end - begin);
    const char after = at_ < text_.size() ? text_[at_] : '\0';
    if (after == '.' || begins_name(after)) expected("an operator");
    return value;
  }

  // Skips blanks and returns the next character without consuming it. Returns '\0' at the end.
  char next() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t')) ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }

  [[noreturn]] void fail(const std::string& what, const std::string& remedy = "") const {
    throw UsageError(where_, fmt::format("{}: {}", quoted_value(text_), what), remedy);
  }
  [[noreturn]] void too_large() const { fail("a value does not fit into 64 bits"); }
  [[noreturn]] void expected(const std::string& wanted) const {
    const std::string found = at_ < text_.size() ? quoted_value(text_.substr(at_, 1)) : "the end";
    fail(fmt::format("expected {} at column {}, found {}", wanted, at_ + 1, found),
         "Write whole numbers, settings such as batch_size, + - * / and parentheses");
  }

  const std::string& text_;
  const std::function<int64_t(const std::string&)>& value_of_;
  const std::string& where_;
  size_t at_ = 0;
};

}  // namespace

int64_t evaluate(const std::string& text, const std::function<int64_t(const std::string&)>& value_of,
                 const std::string& where) {
  return Evaluator(text, value_of, where).all();
}

}  // namespace tessera
