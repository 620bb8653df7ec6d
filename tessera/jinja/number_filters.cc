#include <charconv>
#include <cmath>

#include "tessera/jinja/filters.h"
#include "tessera/jinja/text.h"

namespace tessera::jinja {
namespace {

std::optional<int64_t> parse_whole(std::string_view content, int64_t base) {
  content = strip(content, std::nullopt, Sides::both);
  const bool is_negative = content.starts_with('-');
  if (is_negative || content.starts_with('+')) content.remove_prefix(1);
  if (base < 0 || base == 1 || base > 36) return std::nullopt;
  const char mark = content.size() > 2 && content[0] == '0' ? static_cast<char>(content[1] | 32) : '\0';
  const int64_t marked = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
  if (marked != 0 && (base == 0 || base == marked)) {
    content.remove_prefix(2);
    if (content.starts_with('_')) content.remove_prefix(1);
    base = marked;
  } else if (base == 0) {
    base = 10;
    if (content.starts_with('0') && content.find_first_not_of("0_") != std::string_view::npos) return std::nullopt;
  }
  if (content.empty() || content.front() == '_' || content.back() == '_' ||
      content.find("__") != std::string_view::npos) {
    return std::nullopt;
  }
  std::string digits(content);
  std::erase(digits, '_');
  digits.insert(0, is_negative ? "-" : "");
  int64_t out = 0;
  const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), out, static_cast<int>(base));
  if (result.ptr != digits.data() + digits.size() || digits.find('-', 1) != std::string::npos) return std::nullopt;
  if (result.ec == std::errc::result_out_of_range) throw Fault{"A whole number has more than 63 bits"};
  if (result.ec != std::errc()) return std::nullopt;
  return out;
}

std::optional<double> parse_real(std::string_view content) {
  content = strip(content, std::nullopt, Sides::both);
  std::string digits = lower(content);
  const bool is_negative = digits.starts_with('-');
  if (is_negative || digits.starts_with('+')) digits.erase(0, 1);
  for (size_t at = digits.find('_'); at != std::string::npos; at = digits.find('_')) {
    const auto is_digit = [&](size_t i) { return i < digits.size() && digits[i] >= '0' && digits[i] <= '9'; };
    if (at == 0 || !is_digit(at - 1) || !is_digit(at + 1)) return std::nullopt;
    digits.erase(at, 1);
  }
  double out = 0;
  if (digits == "inf" || digits == "infinity") {
    out = INFINITY;
  } else if (digits == "nan") {
    out = NAN;
  } else {
    if (digits.empty() || (digits[0] != '.' && (digits[0] < '0' || digits[0] > '9'))) return std::nullopt;
    const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), out);
    if (result.ptr != digits.data() + digits.size()) return std::nullopt;
    if (result.ec == std::errc::result_out_of_range) out = std::strtod(digits.c_str(), nullptr);
  }
  return is_negative ? -out : out;
}

Value to_real(Caller&, Args a) {
  const auto [value, standard] = a.take("float", std::array{"value", "default"}, 1);
  check_defined(value);
  if (value.is_number()) return real(value.number());
  const auto number = value.is_text() ? parse_real(value.text()) : std::nullopt;
  return number ? real(*number) : otherwise(standard, real(0));
}

Value to_whole(Caller&, Args a) {
  const auto [value, standard, base] = a.take("int", std::array{"value", "default", "base"}, 1);
  check_defined(value);
  if (value.is_whole()) return integer(value.whole());
  std::optional<double> number;
  if (value.is_text()) {
    if (const auto whole = parse_whole(value.text(), base.is_missing() ? 10 : as_index(base))) return integer(*whole);
    number = parse_real(value.text());
    if (number && !std::isfinite(*number)) number = std::nullopt;
  } else if (value.is(Kind::real)) {
    if (std::isinf(value.real)) throw Fault{"An infinite number is no whole number"};
    if (!std::isnan(value.real)) number = value.real;
  }
  if (!number) return otherwise(standard, integer(0));
  if (!(std::abs(*number) < 0x1p63)) throw Fault{"A whole number has more than 63 bits"};
  return integer(static_cast<int64_t>(*number));
}

Value round_number(Caller&, Args a) {
  const auto [value, precision_value, method_value] = a.take("round", std::array{"value", "precision", "method"}, 1);
  check_defined(value);
  if (!value.is_number()) throw Fault{std::string("`round` needs a number, not ") + type_name(value)};
  const int64_t precision = precision_value.is_missing() ? 0 : as_index(precision_value);
  const std::string method = method_value.is_missing() ? "common" : method_value.is_text() ? method_value.text() : "";
  if (method != "common" && method != "ceil" && method != "floor")
    throw Fault{"The method of `round` is none of common, ceil, floor"};
  if (precision < 0 || precision > 300)
    throw Fault{"The precision of `round` is not between 0 and 300", "Write another precision"};
  if (method == "common") {
    if (value.is_whole()) return integer(value.whole());
    if (!std::isfinite(value.real)) return value;
    std::string digits(static_cast<size_t>(precision) + 400, '\0');
    std::snprintf(digits.data(), digits.size(), "%.*f", static_cast<int>(precision), value.real);
    return real(std::strtod(digits.c_str(), nullptr));
  }
  const double power = std::pow(10.0, static_cast<double>(precision));
  const double scaled = value.number() * power;
  if (!std::isfinite(scaled)) throw Fault{"`round` cannot round this number"};
  // + 0.0, because Python's ceil returns an integer, which has no -0.
  return real(((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) + 0.0) / power);
}

Value absolute(Caller&, Args a) {
  const Value value = a.take("abs", std::array{"value"}, 1)[0];
  check_defined(value);
  if (value.is(Kind::real)) return real(std::abs(value.real));
  if (!value.is_whole() || value.whole() == INT64_MIN)
    throw Fault{std::string("`abs` needs a number, not ") + type_name(value)};
  return integer(std::abs(value.whole()));
}

constexpr Filter kNumberFilters[] = {
    {"abs", absolute},
    {"float", to_real},
    {"int", to_whole},
    {"round", round_number},
};

}  // namespace

std::span<const Filter> number_filters() {
  return kNumberFilters;
}

}  // namespace tessera::jinja
