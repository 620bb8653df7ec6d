#include "tessera/report/record.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "tessera/base/json.h"

namespace tessera {
namespace {

template <typename... Cases>
struct Overload : Cases... {
  using Cases::operator()...;
};
template <typename... Cases>
Overload(Cases...) -> Overload<Cases...>;  // clang 14 cannot deduce this

// Python's repr() of a str: single quotes, unless the text contains single quotes and no double quotes.
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

std::string python_value(const Value& value) {
  return std::visit(
      Overload{[](std::nullptr_t) -> std::string { return "None"; },
               [](bool flag) -> std::string { return flag ? "True" : "False"; },
               [](int64_t number) { return std::to_string(number); }, [](double number) { return python_repr(number); },
               [](const std::string& text) { return python_string(text); },
               [](const std::vector<Value>& list) {
                 std::string out = "[";
                 for (const Value& item : list) out += (out.size() > 1 ? ", " : "") + python_value(item);
                 return out + "]";
               },
               [](const Record& record) { return to_python(record); }},
      value.data());
}

// The position of a value in pretty JSON. One line if spaces_per_level is 0.
struct Layout {
  int spaces_per_level = 0;
  int level = 0;
  Layout inner() const { return {spaces_per_level, level + 1}; }
  std::string separator(bool first) const {
    if (spaces_per_level == 0) return first ? "" : ", ";
    return (first ? "\n" : ",\n") + std::string(static_cast<size_t>(spaces_per_level * level), ' ');
  }
};

std::string json_record(const Record& record, Layout layout);

bool is_plain(const Value& value) {
  return !value.get_if<Record>() && !value.get_if<std::vector<Value>>();
}

std::string json_value(const Value& value, Layout layout) {
  return std::visit(Overload{[](std::nullptr_t) -> std::string { return "null"; },
                             [](bool flag) -> std::string { return flag ? "true" : "false"; },
                             [](int64_t number) { return std::to_string(number); },
                             [](double number) { return std::isfinite(number) ? python_repr(number) : "null"; },
                             [](const std::string& text) { return json_string(text); },
                             [&](const std::vector<Value>& list) {
                               const bool one_line = std::all_of(list.begin(), list.end(), is_plain);
                               const Layout items = one_line ? Layout{} : layout.inner();
                               std::string out = "[";
                               for (const Value& item : list)
                                 out += items.separator(out.size() == 1) + json_value(item, items);
                               return out + (one_line ? "" : layout.separator(true)) + "]";
                             },
                             [&](const Record& record) { return json_record(record, layout); }},
                    value.data());
}

std::string json_record(const Record& record, Layout layout) {
  if (record.empty()) return "{}";
  const Layout inner = layout.inner();
  std::string out = "{";
  for (const Field& field : record.fields()) {
    out += inner.separator(out.size() == 1) + json_string(field.key) + ": " + json_value(field.value, inner);
  }
  return out + layout.separator(true) + "}";
}

Record record_of(const nlohmann::ordered_json& object);

Value value_of(const nlohmann::ordered_json& json) {
  if (json.is_null()) return nullptr;
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_number_float() || (json.is_number_unsigned() && json.get<uint64_t>() > INT64_MAX))
    return json.get<double>();
  if (json.is_number()) return json.get<int64_t>();
  if (json.is_string()) return json.get<std::string>();
  if (json.is_array()) {
    std::vector<Value> list;
    for (const auto& item : json) list.push_back(value_of(item));
    return list;
  }
  return record_of(json);
}

Record record_of(const nlohmann::ordered_json& object) {
  Record record;
  for (const auto& [key, item] : object.items()) record.append(key, value_of(item));
  return record;
}

}  // namespace

Record::Record(std::initializer_list<Field> fields) {
  for (const Field& field : fields) set(field.key, field.value);
}

Record& Record::set(std::string_view key, Value value) {
  const auto found = std::find_if(fields_.begin(), fields_.end(), [&](const Field& field) { return field.key == key; });
  if (found != fields_.end()) {
    found->value = std::move(value);
  } else {
    fields_.push_back({std::string(key), std::move(value)});
  }
  return *this;
}

Record& Record::append(std::string key, Value value) {
  fields_.push_back({std::move(key), std::move(value)});
  return *this;
}

Record& Record::merge(const Record& other) {
  for (const Field& field : other.fields_) set(field.key, field.value);
  return *this;
}

bool Record::erase(std::string_view key) {
  return std::erase_if(fields_, [&](const Field& field) { return field.key == key; }) > 0;
}

const Value* Record::find(std::string_view key) const {
  for (const Field& field : fields_) {
    if (field.key == key) return &field.value;
  }
  return nullptr;
}

bool Record::operator==(const Record& other) const {
  return fields_ == other.fields_;
}

std::string python_repr(double value) {
  if (std::isnan(value)) return "nan";          // Python prints no sign for NaN
  std::string text = fmt::format("{}", value);  // shortest round trip; an exponent below 1e-4 and from 1e16 on
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

std::string to_python(const Record& record) {
  std::string out = "{";
  for (const Field& field : record.fields()) {
    out += (out.size() > 1 ? ", " : "") + python_string(field.key) + ": " + python_value(field.value);
  }
  return out + "}";
}

std::string to_json(const Record& record) {
  return json_record(record, {});
}

std::string to_pretty_json(const Record& record) {
  return json_record(record, {.spaces_per_level = 2});
}

Record record_from_json(std::string_view text, const std::string& where) {
  const auto json = parse_json<nlohmann::ordered_json>(text, where);
  if (!json.is_object()) throw InputError(where, fmt::format("expected a JSON object, found {}", json.type_name()));
  return record_of(json);
}

}  // namespace tessera
