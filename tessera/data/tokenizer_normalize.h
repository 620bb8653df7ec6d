// Normalizers of a tokenizer. They change a text before it is split.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/data/tokenizer_split.h"
#include "tessera/data/tokenizer_text.h"

namespace tessera {

// What to replace, and with what.
struct ReplaceRule {
  std::string pattern;  // not empty
  bool is_regex = false;
  std::string content{};  // the replacement
  std::string where{};    // file and key, for errors
};

// Replaces the non-overlapping matches in a text, from left to right. Thread-safe.
class Replacer {
 public:
  explicit Replacer(ReplaceRule rule);
  std::string operator()(std::string_view text) const;

 private:
  ReplaceRule rule_;
  std::unique_ptr<const Matcher> matcher_;  // only for a regular expression
};

struct NormalizerStep {
  enum class Kind : uint8_t { form, prepend, replace };
  Kind kind;
  NormalForm form{};
  std::string prefix{};  // for prepend
  ReplaceRule replace{};
};

class Normalizer {
 public:
  explicit Normalizer(const std::vector<NormalizerStep>& steps);
  bool does_nothing() const { return steps_.empty(); }
  // Returns the normalized text. `inside`: the text continues another text, so steps of the kind `prepend` are skipped.
  std::string operator()(std::string_view text, bool inside) const;

 private:
  struct Step {
    NormalizerStep::Kind kind;
    NormalForm form;
    std::string prefix;
    std::unique_ptr<const Replacer> replacer;
  };
  std::vector<Step> steps_;
};

}  // namespace tessera
