#include "tessera/data/tokenizer_pattern.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <iterator>
#include <optional>
#include <vector>

#include "tessera/data/unicode.h"

namespace tessera {

namespace {

// Returns the ranges as the inner part of a character class, for example "\x{41}-\x{5A}\x{61}-\x{7A}". Leaves out
// surrogates: Oniguruma rejects them, and no valid UTF-8 text contains them.
std::string code_points(const std::vector<CodeRange>& ranges) {
  std::string text;
  const auto add = [&](uint32_t first, uint32_t last) {
    if (first <= last) fmt::format_to(std::back_inserter(text), "\\x{{{:X}}}-\\x{{{:X}}}", first, last);
  };
  for (const CodeRange& range : ranges) {
    add(range.first, std::min<uint32_t>(range.last, 0xD7FF));
    add(std::max<uint32_t>(range.first, 0xE000), range.last);
  }
  return text;
}

class Rewriter {
 public:
  explicit Rewriter(std::string_view pattern) : pattern_(pattern) {}

  std::string run() {
    while (at_ < pattern_.size()) {
      const char c = pattern_[at_];
      if (c == '\\') {
        escape();
      } else if (c == '[') {
        open_class();
      } else if (class_depth_ > 0) {
        if (c == ']') --class_depth_;
        copy(1);
      } else if (c == '(') {
        open_group();
      } else {
        if (c == ')' && ignores_case_.size() > 1) ignores_case_.pop_back();
        copy(1);
      }
    }
    return std::move(out_);
  }

 private:
  std::string_view rest() const { return pattern_.substr(at_); }
  void copy(size_t count) {
    out_ += pattern_.substr(at_, count);
    at_ = std::min(at_ + count, pattern_.size());
  }

  void escape() {
    const char kind = at_ + 1 < pattern_.size() ? pattern_[at_ + 1] : '\0';
    if (kind == 'w' || kind == 'W') return replace(2, ranges_of_word_characters(), kind == 'W');
    if (kind == 'd' || kind == 'D') return replace(2, ranges_of(only(Category::nd)), kind == 'D');
    if ((kind == 'p' || kind == 'P') && rest().substr(2).starts_with('{')) {
      const size_t end = rest().find('}');
      std::string_view name = rest().substr(0, end).substr(3);
      const bool caret = name.starts_with('^');
      if (caret) name.remove_prefix(1);
      const auto categories = end == std::string_view::npos ? std::nullopt : categories_of(name);
      if (categories) return replace(end + 1, ranges_of(*categories), caret != (kind == 'P'));
    }
    copy(kind == 'c' ? 3 : 2);  // \c[ is a control character, so its [ opens no class
  }

  // Replaces `count` bytes of the pattern with a character class. Oniguruma does not apply (?i) to a property such as
  // \p{L} outside of brackets, so the new class must not ignore case either.
  void replace(size_t count, const std::vector<CodeRange>& ranges, bool negated) {
    const bool folds = class_depth_ == 0 && ignores_case_.back();
    out_ += folds ? "(?-i:[" : "[";
    out_ += code_points(negated ? complement(ranges) : ranges);
    out_ += folds ? "])" : "]";
    at_ += count;
  }

  void open_class() {
    if (class_depth_ > 0 && rest().starts_with("[:")) {
      const size_t end = rest().find(":]");
      if (end <= 20) return copy(end + 2);
    }
    ++class_depth_;
    copy(rest().starts_with("[^") ? 2 : 1);
    if (rest().starts_with(']')) copy(1);  // a ] at the start is a member of the class, not its end
  }

  void open_group() {
    if (rest().starts_with("(?#")) return copy(std::min(rest().find(')'), rest().size()) + 1);
    bool ignores_case = ignores_case_.back(), turns_on = true;
    size_t end = 2;
    if (rest().starts_with("(?")) {
      for (; end < rest().size() && (std::isalpha(static_cast<unsigned char>(rest()[end])) || rest()[end] == '-');
           ++end) {
        if (rest()[end] == '-') turns_on = false;
        if (rest()[end] == 'i') ignores_case = turns_on;
      }
      const char after = end < rest().size() ? rest()[end] : '\0';
      if (after == ')') {  // "(?i)" applies until the end of the group that contains it
        ignores_case_.back() = ignores_case;
        return copy(end + 1);
      }
      if (after != ':') ignores_case = ignores_case_.back();
    }
    ignores_case_.push_back(ignores_case);
    copy(1);
  }

  std::string_view pattern_;
  size_t at_ = 0;
  int class_depth_ = 0;
  std::vector<bool> ignores_case_ = {false};  // of the pattern, then of each open group, from outermost to innermost
  std::string out_;
};

}  // namespace

std::string with_code_points(std::string_view pattern) {
  return Rewriter(pattern).run();
}

}  // namespace tessera
