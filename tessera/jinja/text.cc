#include "tessera/jinja/text.h"

#include <utf8proc.h>

#include <algorithm>

#include "tessera/base/error.h"

namespace tessera::jinja {
namespace {

utf8proc_category_t category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

// The characters whose upper case has several characters (Unicode's SpecialCasing): each character, its upper case, and
// a comma.
constexpr std::u32string_view kLongUpper =
    U"\u00DF\u0053\u0053,\u0149\u02BC\u004E,\u01F0\u004A\u030C,\u0390\u0399\u0308\u0301,\u03B0\u03A5\u0308\u0301,"
    U"\u0587\u0535\u0552,\u1E96\u0048\u0331,\u1E97\u0054\u0308,\u1E98\u0057\u030A,\u1E99\u0059\u030A,"
    U"\u1E9A\u0041\u02BE,\u1F50\u03A5\u0313,\u1F52\u03A5\u0313\u0300,\u1F54\u03A5\u0313\u0301,"
    U"\u1F56\u03A5\u0313\u0342,\u1F80\u1F08\u0399,\u1F81\u1F09\u0399,\u1F82\u1F0A\u0399,\u1F83\u1F0B\u0399,"
    U"\u1F84\u1F0C\u0399,\u1F85\u1F0D\u0399,\u1F86\u1F0E\u0399,\u1F87\u1F0F\u0399,\u1F88\u1F08\u0399,"
    U"\u1F89\u1F09\u0399,\u1F8A\u1F0A\u0399,\u1F8B\u1F0B\u0399,\u1F8C\u1F0C\u0399,\u1F8D\u1F0D\u0399,"
    U"\u1F8E\u1F0E\u0399,\u1F8F\u1F0F\u0399,\u1F90\u1F28\u0399,\u1F91\u1F29\u0399,\u1F92\u1F2A\u0399,"
    U"\u1F93\u1F2B\u0399,\u1F94\u1F2C\u0399,\u1F95\u1F2D\u0399,\u1F96\u1F2E\u0399,\u1F97\u1F2F\u0399,"
    U"\u1F98\u1F28\u0399,\u1F99\u1F29\u0399,\u1F9A\u1F2A\u0399,\u1F9B\u1F2B\u0399,\u1F9C\u1F2C\u0399,"
    U"\u1F9D\u1F2D\u0399,\u1F9E\u1F2E\u0399,\u1F9F\u1F2F\u0399,\u1FA0\u1F68\u0399,\u1FA1\u1F69\u0399,"
    U"\u1FA2\u1F6A\u0399,\u1FA3\u1F6B\u0399,\u1FA4\u1F6C\u0399,\u1FA5\u1F6D\u0399,\u1FA6\u1F6E\u0399,"
    U"\u1FA7\u1F6F\u0399,\u1FA8\u1F68\u0399,\u1FA9\u1F69\u0399,\u1FAA\u1F6A\u0399,\u1FAB\u1F6B\u0399,"
    U"\u1FAC\u1F6C\u0399,\u1FAD\u1F6D\u0399,\u1FAE\u1F6E\u0399,\u1FAF\u1F6F\u0399,\u1FB2\u1FBA\u0399,"
    U"\u1FB3\u0391\u0399,\u1FB4\u0386\u0399,\u1FB6\u0391\u0342,\u1FB7\u0391\u0342\u0399,\u1FBC\u0391\u0399,"
    U"\u1FC2\u1FCA\u0399,\u1FC3\u0397\u0399,\u1FC4\u0389\u0399,\u1FC6\u0397\u0342,\u1FC7\u0397\u0342\u0399,"
    U"\u1FCC\u0397\u0399,\u1FD2\u0399\u0308\u0300,\u1FD3\u0399\u0308\u0301,\u1FD6\u0399\u0342,"
    U"\u1FD7\u0399\u0308\u0342,\u1FE2\u03A5\u0308\u0300,\u1FE3\u03A5\u0308\u0301,\u1FE4\u03A1\u0313,"
    U"\u1FE6\u03A5\u0342,\u1FE7\u03A5\u0308\u0342,\u1FF2\u1FFA\u0399,\u1FF3\u03A9\u0399,\u1FF4\u038F\u0399,"
    U"\u1FF6\u03A9\u0342,\u1FF7\u03A9\u0342\u0399,\u1FFC\u03A9\u0399,\uFB00\u0046\u0046,\uFB01\u0046\u0049,"
    U"\uFB02\u0046\u004C,\uFB03\u0046\u0046\u0049,\uFB04\u0046\u0046\u004C,\uFB05\u0053\u0054,\uFB06\u0053\u0054,"
    U"\uFB13\u0544\u0546,\uFB14\u0544\u0535,\uFB15\u0544\u053B,\uFB16\u054E\u0546,\uFB17\u0544\u053D,";

std::u32string_view long_upper(char32_t c) {
  if (c < 0xDF) return {};
  for (size_t at = 0; at < kLongUpper.size();) {
    const size_t comma = kLongUpper.find(U',', at);
    if (kLongUpper[at] == c) return kLongUpper.substr(at + 1, comma - at - 1);
    at = comma + 1;
  }
  return {};
}

bool is_ascii(std::string_view text) {
  return std::none_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) >= 0x80; });
}

bool is_cased(char32_t c) {
  const auto k = category(c);
  const auto point = static_cast<utf8proc_int32_t>(c);
  return k == UTF8PROC_CATEGORY_LU || k == UTF8PROC_CATEGORY_LL || k == UTF8PROC_CATEGORY_LT || c == U'ª' ||
         c == U'º' || utf8proc_tolower(point) != point || utf8proc_toupper(point) != point;
}

// Unicode's Case_Ignorable: marks, format characters, modifiers, and punctuation within words.
bool is_case_ignorable(char32_t c) {
  constexpr std::u32string_view kWithinWords =
      U"'.:\u00B7\u0387\u055F\u05F4\u2018\u2019\u2024\u2027\uFE13\uFE52\uFE55\uFF07\uFF0E\uFF1A";
  switch (category(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      return kWithinWords.find(c) != std::u32string_view::npos;
  }
}

// Whether the capital sigma at `i` ends a word: a cased character precedes it, and no cased character follows it.
bool is_final_sigma(std::u32string_view text, size_t i) {
  size_t before = i, behind = i + 1;
  while (before > 0 && is_case_ignorable(text[before - 1])) --before;
  while (behind < text.size() && is_case_ignorable(text[behind])) ++behind;
  return before > 0 && is_cased(text[before - 1]) && !(behind < text.size() && is_cased(text[behind]));
}

void add_lower(std::u32string& out, std::u32string_view text, size_t i) {
  if (text[i] == U'\u0130') {
    out += U"i\u0307";
  } else if (text[i] == U'\u03A3') {
    out.push_back(is_final_sigma(text, i) ? U'\u03C2' : U'\u03C3');
  } else {
    out.push_back(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(text[i]))));
  }
}

void add_title(std::u32string& out, char32_t c) {
  const auto point = static_cast<utf8proc_int32_t>(c);
  const auto title = static_cast<char32_t>(utf8proc_totitle(point));
  const auto full = long_upper(c);
  // The Greek letters with an iota below have a title case of one character, but an upper case of two.
  if (full.empty() || (c >= 0x1F80 && c < 0x2000 && title != c && full.back() == U'\u0399')) {
    out.push_back(title);
    return;
  }
  out.push_back(full[0]);
  for (size_t i = 1; i < full.size(); ++i) {
    if (c >= 0x1F80 && c < 0x2000 && full[i] == U'\u0399') {
      out.push_back(U'\u0345');
    } else if (c == U'\u0149') {
      out.push_back(full[i]);
    } else {
      add_lower(out, full, i);
    }
  }
}

// Python's str.isdigit includes these characters, which are no decimal digits.
bool is_other_digit(char32_t c) {
  constexpr struct {
    char32_t first, last;
  } kRanges[] = {{0xB2, 0xB3},     {0xB9, 0xB9},       {0x1369, 0x1371},   {0x19DA, 0x19DA},   {0x2070, 0x2070},
                 {0x2074, 0x2079}, {0x2080, 0x2089},   {0x2460, 0x2468},   {0x2474, 0x247C},   {0x2488, 0x2490},
                 {0x24EA, 0x24EA}, {0x24F5, 0x24FD},   {0x24FF, 0x24FF},   {0x2776, 0x277E},   {0x2780, 0x2788},
                 {0x278A, 0x2792}, {0x10A40, 0x10A43}, {0x10E60, 0x10E68}, {0x11052, 0x1105A}, {0x1F100, 0x1F10A}};
  return std::any_of(std::begin(kRanges), std::end(kRanges),
                     [c](auto range) { return c >= range.first && c <= range.last; });
}

bool is_printable(char32_t c) {
  switch (category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return false;
    case UTF8PROC_CATEGORY_ZS:
      return c == U' ';
    default:
      return true;
  }
}

size_t end_of_space(std::string_view text, size_t at) {
  return text.size() - strip(text.substr(at), std::nullopt, Sides::left).size();
}

}  // namespace

size_t size_at(std::string_view text, size_t at) {
  const auto c = static_cast<unsigned char>(text[at]);
  const size_t size = c < 0x80 ? 1 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
  return std::min(size, text.size() - at);
}

std::u32string decode(std::string_view text) {
  std::u32string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    utf8proc_int32_t point = 0;
    const auto size = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()) + at,
                                       static_cast<utf8proc_ssize_t>(text.size() - at), &point);
    out.push_back(size > 0 ? static_cast<char32_t>(point) : U'\uFFFD');
    at += size > 0 ? static_cast<size_t>(size) : 1;
  }
  return out;
}

std::string encode(std::u32string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char32_t c : text) {
    utf8proc_uint8_t bytes[4];
    const auto size = utf8proc_encode_char(static_cast<utf8proc_int32_t>(c), bytes);
    out.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(size));
  }
  return out;
}

bool is_valid_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    if (static_cast<unsigned char>(text[at]) < 0x80) {
      ++at;
      continue;
    }
    utf8proc_int32_t point = 0;
    const auto size = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()) + at,
                                       static_cast<utf8proc_ssize_t>(text.size() - at), &point);
    if (size <= 0) return false;
    at += static_cast<size_t>(size);
  }
  return true;
}

size_t code_points(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

bool is_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0x2028 || c == 0x2029 ||
         (c > 0x7F && category(c) == UTF8PROC_CATEGORY_ZS);
}

std::string_view strip(std::string_view text, std::optional<std::string_view> characters, Sides sides) {
  const auto goes = [&](std::string_view point) {
    if (characters) return characters->find(point) != std::string_view::npos;
    return is_space(point.size() == 1 ? static_cast<char32_t>(point[0]) : decode(point)[0]);
  };
  if (sides != Sides::right) {
    while (!text.empty() && goes(text.substr(0, size_at(text, 0)))) text.remove_prefix(size_at(text, 0));
  }
  if (sides != Sides::left) {
    while (!text.empty()) {
      size_t at = text.size() - 1;
      while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
      if (!goes(text.substr(at))) break;
      text = text.substr(0, at);
    }
  }
  return text;
}

std::string lower(std::string_view text) {
  if (is_ascii(text)) {
    std::string out(text);
    for (char& c : out) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
    return out;
  }
  const std::u32string points = decode(text);
  std::u32string out;
  for (size_t i = 0; i < points.size(); ++i) add_lower(out, points, i);
  return encode(out);
}

std::string upper(std::string_view text) {
  std::u32string out;
  for (const char32_t c : decode(text)) {
    const auto full = long_upper(c);
    if (full.empty()) {
      out.push_back(static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))));
    } else {
      out += full;
    }
  }
  return encode(out);
}

std::string title(std::string_view text) {
  const std::u32string points = decode(text);
  std::u32string out;
  bool within_word = false;
  for (size_t i = 0; i < points.size(); ++i) {
    if (within_word) {
      add_lower(out, points, i);
    } else {
      add_title(out, points[i]);
    }
    within_word = is_cased(points[i]);
  }
  return encode(out);
}

std::string capitalize(std::string_view text) {
  const std::u32string points = decode(text);
  std::u32string out;
  for (size_t i = 0; i < points.size(); ++i) {
    if (i == 0) {
      add_title(out, points[i]);
    } else {
      add_lower(out, points, i);
    }
  }
  return encode(out);
}

std::optional<bool> is_all(std::string_view name, std::string_view text) {
  const std::u32string points = decode(text);
  const auto all = [&](auto is) { return !points.empty() && std::all_of(points.begin(), points.end(), is); };
  const auto is_alpha = [](char32_t c) {
    const auto k = category(c);
    return k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
  };
  const auto is_decimal = [](char32_t c) { return category(c) == UTF8PROC_CATEGORY_ND; };
  const auto is_digit = [&](char32_t c) { return is_decimal(c) || is_other_digit(c); };
  if (name == "isascii") return is_ascii(text);
  if (name == "isspace") return all(is_space);
  if (name == "isprintable") return points.empty() || all(is_printable);
  if (name == "isalpha") return all(is_alpha);
  if (name == "isdecimal") return all(is_decimal);
  if (name == "isdigit") return all(is_digit);
  if (name == "isalnum") {
    return all([&](char32_t c) {
      return is_alpha(c) || (category(c) >= UTF8PROC_CATEGORY_ND && category(c) <= UTF8PROC_CATEGORY_NO);
    });
  }
  if (name == "islower" || name == "isupper") {
    const bool wants_upper = name == "isupper";
    bool found = false;
    for (const char32_t c : points) {
      const auto k = category(c);
      const auto point = static_cast<utf8proc_int32_t>(c);
      const bool is_upper =
          k == UTF8PROC_CATEGORY_LU || (k != UTF8PROC_CATEGORY_LT && utf8proc_tolower(point) != point);
      if (k == UTF8PROC_CATEGORY_LT || (is_cased(c) && is_upper != wants_upper)) return false;
      found = found || is_cased(c);
    }
    return found;
  }
  return std::nullopt;
}

std::vector<std::string_view> split(std::string_view text, std::optional<std::string_view> separator, int64_t most) {
  std::vector<std::string_view> out;
  if (!separator) text = strip(text, std::nullopt, Sides::left);
  if (!separator && text.empty()) return out;
  while (most < 0 || static_cast<int64_t>(out.size()) < most) {
    size_t end = 0, next = 0;
    if (separator) {
      end = text.find(*separator);
      if (end == std::string_view::npos) break;
      next = end + separator->size();
    } else {
      while (end < text.size() && end_of_space(text, end) == end) end += size_at(text, end);
      next = end == text.size() ? end : end_of_space(text, end);
      if (end == text.size()) break;
      if (next == text.size()) {  // only white space follows
        text = text.substr(0, end);
        break;
      }
    }
    out.push_back(text.substr(0, end));
    text.remove_prefix(next);
  }
  out.push_back(text);
  return out;
}

std::vector<std::string_view> split_right(std::string_view text, std::optional<std::string_view> separator,
                                          int64_t most) {
  std::vector<std::string_view> out;
  if (!separator) text = strip(text, std::nullopt, Sides::right);
  if (!separator && text.empty()) return out;
  while (most < 0 || static_cast<int64_t>(out.size()) < most) {
    if (separator) {
      const size_t at = text.rfind(*separator);
      if (at == std::string_view::npos) break;
      out.push_back(text.substr(at + separator->size()));
      text = text.substr(0, at);
      continue;
    }
    size_t begin = text.size();
    while (begin > 0 && strip(text.substr(0, begin), std::nullopt, Sides::right).size() == begin) {
      do {
        --begin;
      } while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80);
    }
    const std::string_view rest = strip(text.substr(0, begin), std::nullopt, Sides::right);
    if (begin == 0) break;
    if (rest.empty()) {  // only white space precedes
      text.remove_prefix(begin);
      break;
    }
    out.push_back(text.substr(begin));
    text = rest;
  }
  out.push_back(text);
  std::reverse(out.begin(), out.end());
  return out;
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> out;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    size_t size = size_at(text, at);
    const char32_t c = decode(text.substr(at, size))[0];
    if ((c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029) {
      if (c == U'\r' && text.substr(at, 2) == "\r\n") size = 2;
      out.push_back(text.substr(begin, at - begin + (keep_ends ? size : 0)));
      begin = at + size;
    }
    at += size;
  }
  if (begin < text.size()) out.push_back(text.substr(begin));
  return out;
}

std::string replace(std::string_view text, std::string_view old, std::string_view with, int64_t most) {
  std::string out;
  size_t at = 0;
  for (int64_t done = 0; most < 0 || done < most; ++done) {
    if (old.empty()) {  // before each code point, and at the end
      out += with;
      if (at == text.size()) return out;
      const size_t size = size_at(text, at);
      out += text.substr(at, size);
      at += size;
      continue;
    }
    const size_t found = text.find(old, at);
    if (found == std::string_view::npos) break;
    out += text.substr(at, found - at);
    out += with;
    at = found + old.size();
  }
  out += text.substr(at);
  return out;
}

size_t count(std::string_view text, std::string_view part) {
  if (part.empty()) return code_points(text) + 1;
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, at + part.size())) ++found;
  return found;
}

std::string repr_text(std::string_view text) {
  const bool has_single = text.find('\'') != std::string_view::npos,
             has_double = text.find('"') != std::string_view::npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  std::string out(1, quote);
  for (const char32_t c : decode(text)) {
    static constexpr char kHex[] = "0123456789abcdef";
    if (c == static_cast<char32_t>(quote) || c == U'\\') {
      out.push_back('\\');
      out.push_back(static_cast<char>(c));
    } else if (c == U'\n' || c == U'\r' || c == U'\t') {
      out += c == U'\n' ? "\\n" : c == U'\r' ? "\\r" : "\\t";
    } else if (is_printable(c)) {
      out += encode(std::u32string_view(&c, 1));
    } else {
      const int digits = c < 0x100 ? 2 : c < 0x10000 ? 4 : 8;
      out += c < 0x100 ? "\\x" : c < 0x10000 ? "\\u" : "\\U";
      for (int i = digits - 1; i >= 0; --i) out.push_back(kHex[(c >> (4 * i)) & 15]);
    }
  }
  out.push_back(quote);
  return out;
}

std::string escape_html(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&#34;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out.push_back(c);
    }
  }
  return out;
}

}  // namespace tessera::jinja
