#include "tessera/base/record.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "tessera/base/json.h"

namespace tessera {
namespace {

// Python's repr() of a str. The quotes are double if the text contains single quotes and no double quotes. Otherwise,
// they are single.
std::string python_string(std::string_view text) {
  const bool double_quotes = text.find('\'') != text.npos && text.find('"') == text.npos;
  const char quote = double_quotes ? '"' : '\'';
  std::string out(1, quote);
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == quote || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (byte < 0x20 || byte == 0x7f) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  return out += quote;
}

std::string json_string(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string whole_number(const Record& value) {
  return value.is_number_unsigned() ? std::to_string(value.get<uint64_t>()) : std::to_string(value.get<int64_t>());
}

// The indentation of a value in JSON. Everything is on one line if spaces_per_level is 0.
struct Layout {
  int spaces_per_level = 0;
  int level = 0;
  Layout inner() const { return {spaces_per_level, level + 1}; }
  std::string separator(bool first) const {
    if (spaces_per_level == 0) return first ? "" : ", ";
    return (first ? "\n" : ",\n") + std::string(static_cast<size_t>(spaces_per_level * level), ' ');
  }
};

std::string json_text(const Record& value, Layout layout) {
  if (value.is_string()) return json_string(value.get_ref<const std::string&>());
  if (value.is_number_integer()) return whole_number(value);
  if (value.is_number()) return std::isfinite(value.get<double>()) ? python_repr(value.get<double>()) : "null";
  if (!value.is_structured()) return value.dump();
  if (value.is_object() && value.empty()) return "{}";
  const bool one_line =
      value.is_array() && std::none_of(value.begin(), value.end(), [](const Record& v) { return v.is_structured(); });
  const Layout inner = one_line ? Layout{} : layout.inner();
  std::string out(1, value.is_array() ? '[' : '{');
  for (const auto& [key, item] : value.items()) {
    out += inner.separator(out.size() == 1);
    if (value.is_object()) out += json_string(key) + ": ";
    out += json_text(item, inner);
  }
  return out + (one_line ? "" : layout.separator(true)) + (value.is_array() ? ']' : '}');
}

}  // namespace

std::string python_repr(double value) {
  if (std::isnan(value)) return "nan";  // Python prints no sign for NaN
  // The shortest text for this value. Like Python's, it has an exponent if the magnitude is below 1e-4, or is at least
  // 1e16.
  std::string text = fmt::format("{}", value);
  if (text.find_first_not_of("-0123456789") == text.npos) text += ".0";
  return text;
}

double round_decimals(double value, int decimals) {
  if (!std::isfinite(value)) return value;
  const std::string text = fmt::format("{:.{}f}", value, decimals);  // rounds the exact binary value, as Python does
  double rounded = 0;
  std::from_chars(text.data(), text.data() + text.size(), rounded);
  return rounded;
}

std::string to_python(const Record& value) {
  if (value.is_null()) return "None";
  if (value.is_boolean()) return value.get<bool>() ? "True" : "False";
  if (value.is_string()) return python_string(value.get_ref<const std::string&>());
  if (value.is_number_integer()) return whole_number(value);
  if (value.is_number()) return python_repr(value.get<double>());
  std::string out(1, value.is_array() ? '[' : '{');
  for (const auto& [key, item] : value.items()) {
    if (out.size() > 1) out += ", ";
    if (value.is_object()) out += python_string(key) + ": ";
    out += to_python(item);
  }
  return out + (value.is_array() ? ']' : '}');
}

std::string to_json(const Record& value) {
  return json_text(value, {});
}

std::string to_pretty_json(const Record& value) {
  return json_text(value, {.spaces_per_level = 2});
}

Record record_from_json(std::string_view text, const std::string& where) {
  Record record = parse_json<Record>(text, where);
  if (!record.is_object()) throw InputError(where, fmt::format("expected a JSON object, found {}", record.type_name()));
  return record;
}

}  // namespace tessera
