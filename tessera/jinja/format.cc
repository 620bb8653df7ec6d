// Python's two ways to format values: pattern % arguments, and pattern.format(arguments).
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "tessera/base/error.h"
#include "tessera/base/record.h"
#include "tessera/jinja/builtins.h"
#include "tessera/jinja/text.h"

namespace tessera::jinja {
namespace {

constexpr int64_t kWidest = 100'000;

struct Spec {
  std::string fill = " ";
  char align = '\0';  // < > ^ =
  char sign = '-';    // - + space
  bool alternate = false, zeros = false;
  int64_t width = 0, precision = -1;
  char grouping = '\0';  // , _
  char type = '\0';
};

void check(int64_t number) {
  if (number > kWidest) throw Fault{"A width or precision in a format is larger than 100000"};
}

// Pads `body`, a number or text without sign, after its `sign` and prefix.
std::string padded(const Spec& spec, const std::string& sign, const std::string& body, char default_align) {
  const auto missing = spec.width - static_cast<int64_t>(code_points(sign) + code_points(body));
  if (missing <= 0) return sign + body;
  std::string before, after;
  const char align = spec.align != '\0' ? spec.align : spec.zeros ? '=' : default_align;
  const int64_t left = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  const std::string& fill = spec.zeros && spec.align == '\0' ? "0" : spec.fill;
  for (int64_t i = 0; i < missing; ++i) (i < left ? before : after) += fill;
  return align == '=' ? sign + before + body : before + sign + body + after;
}

std::string sign_of(const Spec& spec, bool is_negative) {
  return is_negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
}

// Digits with a separator between groups; what follows the whole part stays as it is.
std::string grouped(const std::string& digits, char separator, size_t group) {
  if (separator == '\0') return digits;
  const size_t whole = std::min(digits.find_first_not_of("0123456789abcdefABCDEF"), digits.size());
  std::string out;
  for (size_t i = 0; i < whole; ++i) {
    if (i > 0 && (whole - i) % group == 0) out.push_back(separator);
    out.push_back(digits[i]);
  }
  return out + digits.substr(whole);
}

std::string whole_digits(uint64_t number, int base, bool is_upper) {
  char buffer[65];
  std::string out(buffer, std::to_chars(buffer, buffer + sizeof(buffer), number, base).ptr);
  return is_upper ? upper(out) : out;
}

std::string format_whole(const Spec& spec, int64_t number) {
  const uint64_t size = number < 0 ? 0 - static_cast<uint64_t>(number) : static_cast<uint64_t>(number);
  const char type = spec.type == '\0' || spec.type == 'i' || spec.type == 'u' ? 'd' : spec.type;
  const int base = type == 'd' ? 10 : type == 'b' ? 2 : type == 'o' ? 8 : 16;
  std::string digits = whole_digits(size, base, type == 'X');
  if (spec.precision > static_cast<int64_t>(digits.size())) {
    digits.insert(0, static_cast<size_t>(spec.precision) - digits.size(), '0');
  }
  const std::string prefix = spec.alternate && base != 10 ? std::string("0") + type : "";
  if (spec.zeros && spec.grouping != '\0')
    throw Fault{"A format with zeros and a separator of groups is not supported"};
  return padded(spec, sign_of(spec, number < 0) + prefix, grouped(digits, spec.grouping, base == 10 ? 3 : 4), '>');
}

std::string format_real(const Spec& spec, double number) {
  std::string digits;
  const double size = std::abs(number);
  const bool is_negative = std::signbit(number) && !std::isnan(number);
  const bool is_percent = spec.type == '%';
  if (spec.type == '\0') {
    if (spec.precision >= 0)
      throw Fault{"A format of a number with a precision and no type is not supported", "Write the type f or g"};
    digits = python_repr(size);
  } else {
    const char type = is_percent ? 'f' : spec.type;
    const std::string pattern = std::string(spec.alternate ? "%#.*" : "%.*") + type;
    const int precision = spec.precision < 0 ? 6 : static_cast<int>(spec.precision);
    const double shown = is_percent ? size * 100 : size;
    digits.resize(static_cast<size_t>(precision) + 400);
    digits.resize(static_cast<size_t>(std::snprintf(digits.data(), digits.size(), pattern.c_str(), precision, shown)));
    if (is_percent) digits.push_back('%');
  }
  if (spec.zeros && spec.grouping != '\0')
    throw Fault{"A format with zeros and a separator of groups is not supported"};
  return padded(spec, sign_of(spec, is_negative), grouped(digits, std::isfinite(size) ? spec.grouping : '\0', 3), '>');
}

std::string cut(const std::string& content, int64_t precision) {
  if (precision < 0) return content;
  size_t at = 0;
  for (int64_t i = 0; i < precision && at < content.size(); ++i) at += size_at(content, at);
  return content.substr(0, at);
}

std::string character(const Value& value) {
  if (value.is_text() && code_points(value.text()) == 1) return value.text();
  const int64_t code = value.is_text() ? -1 : as_index(value);
  if (code < 0 || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) throw Fault{"The format c needs a character"};
  const auto point = static_cast<char32_t>(code);
  return encode(std::u32string_view(&point, 1));
}

std::string escaped_ascii(const std::string& content) {
  std::string out;
  for (const char32_t c : decode(content)) {
    char buffer[16];
    std::snprintf(buffer, sizeof(buffer),
                  c < 0x80      ? "%c"
                  : c < 0x100   ? "\\x%02x"
                  : c < 0x10000 ? "\\u%04x"
                                : "\\U%08x",
                  static_cast<unsigned>(c));
    out += c == 0 ? std::string(1, '\0') : buffer;
  }
  return out;
}

int64_t digits_at(std::string_view text, size_t& at) {
  int64_t out = 0;
  for (; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at) check(out = out * 10 + (text[at] - '0'));
  return out;
}

}  // namespace

std::string format_percent(Caller& caller, std::string_view pattern, const Value& arguments) {
  std::string out;
  size_t used = 0;
  const bool is_tuple = arguments.is(Kind::tuple);
  const bool is_mapping = arguments.is(Kind::dict) || arguments.is(Kind::list) || arguments.is(Kind::undefined) ||
                          arguments.is(Kind::range);
  const auto next = [&]() -> Value {
    if (is_tuple ? used >= arguments.items().size() : used > 0) throw Fault{"A format has too few arguments"};
    return is_tuple ? arguments.items()[used++] : (++used, arguments);
  };
  bool has_keys = false;
  for (size_t at = 0; at < pattern.size();) {
    if (pattern[at] != '%') {
      const size_t end = std::min(pattern.find('%', at), pattern.size());
      out += pattern.substr(at, end - at);
      at = end;
      continue;
    }
    ++at;
    Spec spec;
    Value value;
    bool has_key = false;
    if (at < pattern.size() && pattern[at] == '(') {
      int open = 1;
      const size_t begin = ++at;
      for (; at < pattern.size() && open > 0; ++at) open += (pattern[at] == '(') - (pattern[at] == ')');
      if (open > 0) throw Fault{"A format has an incomplete key"};
      if (!arguments.is(Kind::dict)) throw Fault{"A format with keys needs a dict"};
      const Value key = text(caller.meter, std::string(pattern.substr(begin, at - begin - 1)));
      const Value* found = find(caller.meter, arguments.as<Dict>(), key);
      if (found == nullptr) throw Fault{"A format names the key " + printable(key.text()) + ", which is missing"};
      value = *found;
      has_key = has_keys = true;
    }
    for (; at < pattern.size() && std::string_view("#0- +").find(pattern[at]) != std::string_view::npos; ++at) {
      const char flag = pattern[at];
      if (flag == '#') spec.alternate = true;
      if (flag == '0') spec.zeros = true;
      if (flag == '-') spec.align = '<';
      if (flag == '+' || (flag == ' ' && spec.sign != '+')) spec.sign = flag;
    }
    const auto number = [&]() -> int64_t {
      if (at >= pattern.size() || pattern[at] != '*') return digits_at(pattern, at);
      ++at;
      return as_index(next());
    };
    check(spec.width = number());
    if (spec.width < 0) {
      spec.align = '<';
      spec.width = -std::max(spec.width, -kWidest);
    }
    if (at < pattern.size() && pattern[at] == '.') check(spec.precision = (++at, std::max<int64_t>(number(), 0)));
    while (at < pattern.size() && (pattern[at] == 'l' || pattern[at] == 'h' || pattern[at] == 'L')) ++at;
    if (at >= pattern.size()) throw Fault{"A format ends after %"};
    spec.type = pattern[at++];
    if (spec.type == '%') {
      out.push_back('%');
      continue;
    }
    if (std::string_view("diuoxXeEfFgGcrsa").find(spec.type) == std::string_view::npos) {
      throw Fault{std::string("The format %") + printable(std::string(1, spec.type)) + " is not known"};
    }
    if (!has_key) value = next();
    caller.meter.bytes(static_cast<size_t>(std::max(spec.width, spec.precision) + 32));
    if (std::string_view("diuoxX").find(spec.type) != std::string_view::npos) {
      const bool is_decimal = spec.type == 'd' || spec.type == 'i' || spec.type == 'u';
      if (!value.is_whole() && !(is_decimal && value.is(Kind::real))) {
        throw Fault{std::string("The format %") + spec.type + " needs a number, not " + type_name(value)};
      }
      if (!value.is_whole() && !(std::abs(value.real) < 0x1p63)) throw Fault{"A number is too large for its format"};
      out += format_whole(spec, value.is_whole() ? value.whole() : static_cast<int64_t>(value.real));
    } else if (std::string_view("eEfFgG").find(spec.type) != std::string_view::npos) {
      if (!value.is_number())
        throw Fault{std::string("The format %") + spec.type + " needs a number, not " + type_name(value)};
      if (!std::isfinite(value.number())) spec.zeros = false;
      out += format_real(spec, value.number());
    } else {
      std::string content = spec.type == 'c'   ? character(value)
                            : spec.type == 's' ? str(caller.meter, value)
                                               : repr(caller.meter, value);
      if (spec.type == 'a') content = escaped_ascii(content);
      spec.zeros = false;
      if (spec.type != 'c') content = cut(content, spec.precision);
      caller.meter.bytes(content.size());
      out += padded(spec, "", content, '>');
    }
  }
  const bool has_more = is_tuple ? used < arguments.items().size() : used == 0 && !is_mapping;
  if (has_more && !has_keys) throw Fault{"A format has too many arguments"};
  return out;
}

namespace {

Spec spec_of(std::string_view text) {
  Spec spec;
  size_t at = 0;
  const auto is_align = [&](size_t i) {
    return i < text.size() && std::string_view("<>=^").find(text[i]) != std::string_view::npos;
  };
  const size_t first = text.empty() ? 0 : size_at(text, 0);
  if (is_align(first) && first > 0) {
    spec.fill = text.substr(0, first);
    spec.align = text[first];
    at = first + 1;
  } else if (is_align(0)) {
    spec.align = text[0];
    at = 1;
  }
  const auto skip = [&](char c) { return at < text.size() && text[at] == c ? (++at, true) : false; };
  if (at < text.size() && (text[at] == '+' || text[at] == '-' || text[at] == ' ')) spec.sign = text[at++];
  spec.alternate = skip('#');
  if (skip('0')) {
    if (spec.align == '\0') {
      spec.zeros = true;
    }
  }
  spec.width = digits_at(text, at);
  if (at < text.size() && (text[at] == ',' || text[at] == '_')) spec.grouping = text[at++];
  if (skip('.')) {
    if (at >= text.size() || text[at] < '0' || text[at] > '9') throw Fault{"A format has no precision after ."};
    spec.precision = digits_at(text, at);
  }
  if (at < text.size()) spec.type = text[at++];
  if (at < text.size()) throw Fault{"The format " + printable(text) + " is not valid"};
  return spec;
}

std::string formatted(Caller& caller, const Value& value, std::string_view text) {
  if (text.empty()) return str(caller.meter, value);
  Spec spec = spec_of(text);
  caller.meter.bytes(static_cast<size_t>(spec.width + std::max<int64_t>(spec.precision, 0)) * spec.fill.size() + 32);
  const auto is_one_of = [&](std::string_view types) {
    return spec.type == '\0' || types.find(spec.type) != std::string_view::npos;
  };
  if (value.is_text() && is_one_of("s")) {
    if (spec.sign != '-' || spec.alternate || spec.grouping != '\0' || spec.align == '=')
      throw Fault{"A format of a text has options for numbers"};
    if (spec.zeros) {
      spec.fill = "0";
      spec.zeros = false;
    }
    return padded(spec, "", cut(value.text(), spec.precision), '<');
  }
  if (value.is_whole() && is_one_of("dboxX") && spec.precision < 0) return format_whole(spec, value.whole());
  if (value.is_number() && is_one_of("eEfFgG%") && (spec.type != '\0' || value.is(Kind::real))) {
    return format_real(spec, value.number());
  }
  throw Fault{"The format " + printable(text) + " cannot be used for a value of type " + type_name(value)};
}

}  // namespace

std::string format_braces(Caller& caller, std::string_view pattern, const Arguments& arguments) {
  std::string out;
  size_t automatic = 0;
  bool has_numbers = false;
  for (size_t at = 0; at < pattern.size(); ++at) {
    const char c = pattern[at];
    if (c != '{' && c != '}') {
      out.push_back(c);
      continue;
    }
    if (at + 1 < pattern.size() && pattern[at + 1] == c) {
      out.push_back(c);
      ++at;
      continue;
    }
    const size_t end = pattern.find('}', at);
    if (c == '}' || end == std::string_view::npos) throw Fault{"A format has a single brace", "Write it twice"};
    std::string_view field = pattern.substr(at + 1, end - at - 1);
    if (field.find('{') != std::string_view::npos)
      throw Fault{"Nested fields of a format are not supported", "Format the value first"};
    at = end;
    std::string_view spec;
    const size_t colon = field.find(':');
    if (colon != std::string_view::npos) {
      spec = field.substr(colon + 1);
      field = field.substr(0, colon);
    }
    char conversion = '\0';
    if (const size_t mark = field.find('!'); mark != std::string_view::npos) {
      if (field.size() != mark + 2 || std::string_view("rsa").find(field[mark + 1]) == std::string_view::npos) {
        throw Fault{"The conversion in a format is not known"};
      }
      conversion = field[mark + 1];
      field = field.substr(0, mark);
    }
    const size_t name_end = std::min(field.find_first_of(".["), field.size());
    const std::string name(field.substr(0, name_end));
    Value value;
    size_t index = automatic;
    size_t digits = 0;
    const bool is_number = name.empty() || (digits_at(name, digits), digits == name.size());
    if (is_number) {
      if (name.empty() ? has_numbers : automatic > 0) throw Fault{"A format mixes {} and {0}"};
      if (name.empty()) {
        ++automatic;
      } else {
        digits = 0;
        index = static_cast<size_t>(digits_at(name, digits));
        has_numbers = true;
      }
      if (index >= arguments.positional.size()) throw Fault{"A format has too few arguments"};
      value = arguments.positional[index];
    } else {
      for (const auto& [other, named] : arguments.named) {
        if (other == name) value = named;
      }
      if (value.is_missing()) throw Fault{"A format names the argument " + printable(name) + ", which is missing"};
    }
    for (size_t i = name_end; i < field.size();) {
      const bool is_attribute = field[i] == '.';
      const size_t stop = is_attribute ? std::min(field.find_first_of(".[", i + 1), field.size()) : field.find(']', i);
      if (stop == std::string_view::npos) throw Fault{"A format has a bracket without end"};
      const std::string part(field.substr(i + 1, stop - i - 1));
      if (part.empty()) throw Fault{"A format has an empty name"};
      size_t at_digit = 0;
      const int64_t number = digits_at(part, at_digit);
      value = is_attribute
                  ? attribute(caller, value, part)
                  : subscript(caller, value, at_digit == part.size() ? integer(number) : text(caller.meter, part));
      i = stop + (is_attribute ? 0 : 1);
      if (!is_attribute && i < field.size() && field[i] != '.' && field[i] != '[')
        throw Fault{"A format has text after a bracket"};
    }
    if (conversion != '\0') {
      const std::string content = conversion == 's' ? str(caller.meter, value) : repr(caller.meter, value);
      value = text(caller.meter, conversion == 'a' ? escaped_ascii(content) : content);
    }
    out += formatted(caller, value, spec);
    caller.meter.bytes(out.size() / 16 + 16);
  }
  return out;
}

}  // namespace tessera::jinja
