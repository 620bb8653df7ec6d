#include "tessera/data/tokenizer_split.h"

#include <oniguruma.h>

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/data/tokenizer_pattern.h"
#include "tessera/data/tokenizer_text.h"
#include "tessera/data/unicode.h"

namespace tessera {

namespace {

const OnigUChar* bytes_of(const char* text) {
  return reinterpret_cast<const OnigUChar*>(text);
}

void initialize_oniguruma() {
  static const int status = [] {
    OnigEncoding encodings[] = {ONIG_ENCODING_UTF8};
    return onig_initialize(encodings, 1);
  }();
  TESSERA_ASSERT(status == ONIG_NORMAL);
}

std::string onig_message(int code, OnigErrorInfo* info) {
  OnigUChar buffer[ONIG_MAX_ERROR_MESSAGE_LEN];
  const int length = info ? onig_error_code_to_str(buffer, code, info) : onig_error_code_to_str(buffer, code);
  return {reinterpret_cast<const char*>(buffer), static_cast<size_t>(std::max(length, 0))};
}

class RegexMatcher : public Matcher {
 public:
  RegexMatcher(const std::string& pattern, std::string where) : where_(std::move(where)) {
    initialize_oniguruma();
    if (pattern.size() > kLongestPattern) {
      throw InputError(where_, "the pattern has " + std::to_string(pattern.size()) + " bytes",
                       "The maximum is " + std::to_string(kLongestPattern) + " bytes");
    }
    const std::string known = with_code_points(pattern);
    OnigErrorInfo info{};
    const int status = onig_new(&regex_, bytes_of(known.data()), bytes_of(known.data() + known.size()),
                                ONIG_OPTION_NONE, ONIG_ENCODING_UTF8, ONIG_SYNTAX_ONIGURUMA, &info);
    if (status != ONIG_NORMAL) {
      throw InputError(where_, "Oniguruma rejects the pattern: " + onig_message(status, &info),
                       "Use the tokenizer.json that came with the model");
    }
  }
  ~RegexMatcher() override { onig_free(regex_); }
  RegexMatcher(const RegexMatcher&) = delete;
  RegexMatcher& operator=(const RegexMatcher&) = delete;

  void find(std::string_view text, std::vector<Span>& matches) const override {
    // A search writes to region and param. Each call makes its own, so several threads can search at the same time.
    const std::unique_ptr<OnigRegion, void (*)(OnigRegion*)> region(onig_region_new(),
                                                                    [](OnigRegion* r) { onig_region_free(r, 1); });
    const std::unique_ptr<OnigMatchParam, void (*)(OnigMatchParam*)> param(onig_new_match_param(),
                                                                           onig_free_match_param);
    if (!region || !param) throw std::bad_alloc();
    set_limits(param.get(), text.size());

    const OnigUChar* begin = bytes_of(text.data());
    const OnigUChar* end = begin + text.size();
    size_t last_end = std::string_view::npos;
    for (size_t at = 0; at <= text.size();) {
      const int status =
          onig_search_with_param(regex_, begin, end, begin + at, end, region.get(), ONIG_OPTION_NONE, param.get());
      if (status == ONIG_MISMATCH) return;
      if (status < 0) {
        throw InputError(where_,
                         "the pattern needs too many steps on a text of " + std::to_string(text.size()) +
                             " bytes: " + onig_message(status, nullptr),
                         "Use a pattern with less backtracking, or shorten the text");
      }
      const Span match{static_cast<size_t>(region->beg[0]), static_cast<size_t>(region->end[0])};
      // An empty match directly behind the previous match does not count. The search continues at the next character.
      if (match.begin == match.end && match.end == last_end) {
        at = match.end < text.size() ? match.end + code_point_at(text, match.end).num_bytes : text.size() + 1;
        continue;
      }
      matches.push_back(match);
      at = last_end = match.end;
    }
  }

 private:
  static constexpr size_t kLongestPattern = 4096;

  // With a reasonable pattern, Oniguruma goes back ("retries") a few times per byte of the text. The limits grow with
  // the text's size, and stop patterns with polynomial or exponential cost.
  static void set_limits(OnigMatchParam* param, size_t num_bytes) {
    const unsigned long steps = 100'000 + 16 * num_bytes;
    onig_initialize_match_param(param);
    onig_set_retry_limit_in_match_of_match_param(param, steps);
    onig_set_retry_limit_in_search_of_match_param(param, steps);
    onig_set_match_stack_limit_size_of_match_param(
        param, static_cast<unsigned int>(std::min<unsigned long>(steps, 0xFFFFFFFFul)));
  }

  std::string where_;
  OnigRegex regex_ = nullptr;
};

// Every match is an optional space and a maximal run of characters that are not delimiters. The 39 delimiters are the
// 25 white-space characters, ! ( ) , . ? | and the 7 characters in is_delimiter(). (In kBloomPattern, ( ) and | are
// inside a character class, so Oniguruma reads them as members of this class. The members of the nested class
// [.,!?...] also belong to the outer class.)
class BloomMatcher : public Matcher {
 public:
  BloomMatcher() {
    for (const char c : std::string_view("\t\n\v\f\r !(),.?|")) ascii_delimiter_[static_cast<uint8_t>(c)] = true;
  }

  void find(std::string_view text, std::vector<Span>& matches) const override {
    for (size_t at = 0; at < text.size();) {
      const size_t run = text[at] == ' ' ? at + 1 : at;
      const size_t end = skip_run(text, run);
      if (end > run) {
        matches.push_back({at, end});
        at = end;
      } else {
        at += code_point_at(text, at).num_bytes;
      }
    }
  }

 private:
  size_t skip_run(std::string_view text, size_t at) const {
    while (at < text.size()) {
      const auto byte = static_cast<uint8_t>(text[at]);
      if (byte < 0x80) {
        if (ascii_delimiter_[byte]) break;
        ++at;
        continue;
      }
      const CodePoint c = code_point_at(text, at);
      if (is_delimiter(c.code)) break;
      at += c.num_bytes;
    }
    return at;
  }
  static bool is_delimiter(char32_t code) {
    switch (code) {
      case 0x060C:
      case 0x06D4:
      case 0x0964:
      case 0x2026:
      case 0x3001:
      case 0x3002:
      case 0xFF0C:
        return true;
      default:
        return is_white_space(code);
    }
  }

  bool ascii_delimiter_[128] = {};
};

class Gpt2Matcher : public Matcher {
 public:
  Gpt2Matcher() : class_of_(category_table().size(), kOther) {
    for (char32_t code = 0; code < class_of_.size(); ++code) {
      const Categories category = only(category_table()[code]);
      if (kLetters & category) class_of_[code] = kLetter;
      if (kNumbers & category) class_of_[code] = kNumber;
      if (is_white_space(code)) class_of_[code] = kSpace;
    }
  }

  void find(std::string_view text, std::vector<Span>& matches) const override {
    for (size_t at = 0; at < text.size();) {
      const size_t end = match_end(text, at);
      matches.push_back({at, end});
      at = end;
    }
  }

 private:
  enum Class : uint8_t { kOther, kLetter, kNumber, kSpace };

  size_t skip_class(std::string_view text, size_t at, uint8_t wanted) const {
    while (at < text.size()) {
      const CodePoint c = code_point_at(text, at);
      if (class_of_[c.code] != wanted) break;
      at += c.num_bytes;
    }
    return at;
  }

  size_t match_end(std::string_view text, size_t at) const {
    if (text[at] == '\'') {
      for (const std::string_view ending : {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"}) {
        if (text.substr(at, ending.size()) == ending) return at + ending.size();
      }
    }
    const size_t run = text[at] == ' ' && at + 1 < text.size() ? at + 1 : at;
    const uint8_t run_class = class_of_[code_point_at(text, run).code];
    if (run_class != kSpace) return skip_class(text, run, run_class);
    // \s+(?!\S) matches a run of white space: the complete run at the end of the text, and otherwise all except its
    // last character. If a run before other text has only one character, the alternative \s+ matches this character.
    const size_t end = skip_class(text, at, kSpace);
    if (end == text.size()) return end;
    const size_t last = end - code_point_before(text, end).num_bytes;
    return last > at ? last : end;
  }

  std::vector<uint8_t> class_of_;  // [code point]
};

}  // namespace

std::unique_ptr<const Matcher> make_regex_matcher(const std::string& pattern, const std::string& where) {
  return std::make_unique<RegexMatcher>(pattern, where);
}

std::unique_ptr<const Matcher> make_matcher(const std::string& pattern, const std::string& where) {
  if (pattern == kBloomPattern) return std::make_unique<BloomMatcher>();
  if (pattern == kGpt2Pattern) return std::make_unique<Gpt2Matcher>();
  return make_regex_matcher(pattern, where);
}

void Splitter::split(std::string_view text, Span piece, std::vector<Span>& matches, std::vector<Span>& pieces) const {
  matches.clear();
  matcher_->find(text.substr(piece.begin, piece.end - piece.begin), matches);

  // Walks forward over the matches and the gaps between them. Each match or gap joins the previous piece, starts a new
  // piece, or is removed. The result equals the result of NormalizedString::split in Hugging Face's tokenizers,
  // although that function walks backward for MergedWithNext.
  const size_t first = pieces.size();
  bool previous_delimiter = false;
  const auto part = [&](size_t begin, size_t end, bool delimiter) {
    const bool has_previous = pieces.size() > first;
    bool join = false;
    switch (behavior_) {
      case SplitBehavior::removed:
        if (delimiter) return;
        break;
      case SplitBehavior::isolated:
        break;
      case SplitBehavior::contiguous:
        join = delimiter == previous_delimiter;
        break;
      case SplitBehavior::merged_with_previous:
        join = delimiter && !previous_delimiter;
        break;
      case SplitBehavior::merged_with_next:
        join = previous_delimiter && !delimiter;
        break;
    }
    previous_delimiter = delimiter;
    if (join && has_previous) {
      pieces.back().end = piece.begin + end;
    } else {
      pieces.push_back({piece.begin + begin, piece.begin + end});
    }
  };
  size_t at = 0;
  for (const Span& match : matches) {
    if (match.begin > at) part(at, match.begin, invert_);
    part(match.begin, match.end, !invert_);
    at = match.end;
  }
  if (piece.begin + at < piece.end) part(at, piece.end - piece.begin, invert_);
  const auto is_empty = [](const Span& span) { return span.begin == span.end; };
  pieces.erase(std::remove_if(pieces.begin() + static_cast<ptrdiff_t>(first), pieces.end(), is_empty), pieces.end());
}

}  // namespace tessera
