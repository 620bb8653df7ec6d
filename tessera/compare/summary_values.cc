#include "tessera/compare/summary_values.h"

#include <fmt/format.h>

#include <cmath>
#include <set>

#include "tessera/compare/words.h"

namespace tessera {

namespace {

const Value* find_value(const Record& record, std::string_view key) {
  if (const Value* value = record.find(key)) return value;
  for (size_t dot = key.find('.'); dot != key.npos; dot = key.find('.', dot + 1)) {
    const Value* outer = record.find(key.substr(0, dot));
    const Record* inner = outer ? outer->get_if<Record>() : nullptr;
    if (const Value* value = inner ? find_value(*inner, key.substr(dot + 1)) : nullptr) return value;
  }
  return nullptr;
}

std::optional<double> number_of(const Value& value) {
  if (const auto* whole = value.get_if<int64_t>()) return static_cast<double>(*whole);
  if (const auto* number = value.get_if<double>(); number && std::isfinite(*number)) return *number;
  return {};
}

const std::vector<Value>* find_list(const Record& record, std::string_view key) {
  const Value* value = find_value(record, key);
  return value ? value->get_if<std::vector<Value>>() : nullptr;
}

std::string plain_text(const Value& value) {
  if (const auto* text = value.get_if<std::string>()) return *text;
  if (const auto* flag = value.get_if<bool>()) return *flag ? "true" : "false";
  if (const auto* whole = value.get_if<int64_t>()) return std::to_string(*whole);
  if (const auto* number = value.get_if<double>()) return fmt::format("{}", *number);
  std::vector<std::string> texts;
  if (const auto* list = value.get_if<std::vector<Value>>()) {
    for (const Value& item : *list) texts.push_back(plain_text(item));
  }
  return join_words(texts);
}

}  // namespace

bool has_value(const Record& record, std::string_view key) {
  return find_value(record, key) != nullptr;
}

bool is_null(const Record& record, std::string_view key) {
  const Value* value = find_value(record, key);
  return value && value->get_if<std::nullptr_t>();
}

std::optional<double> find_number(const Record& record, std::string_view key) {
  const Value* value = find_value(record, key);
  return value ? number_of(*value) : std::nullopt;
}

std::vector<double> find_numbers(const Record& record, std::string_view key) {
  std::vector<double> numbers;
  if (const auto number = find_number(record, key)) numbers.push_back(*number);
  if (const auto* list = find_list(record, key)) {
    for (const Value& item : *list) {
      if (const auto number = number_of(item)) numbers.push_back(*number);
    }
  }
  return numbers;
}

std::string find_text(const Record& record, std::string_view key) {
  const Value* value = find_value(record, key);
  const auto* text = value ? value->get_if<std::string>() : nullptr;
  return text ? *text : "";
}

std::string find_texts(const Record& record, std::string_view key) {
  std::set<std::string> texts;
  if (const auto* list = find_list(record, key)) {
    for (const Value& item : *list) {
      if (const auto* text = item.get_if<std::string>()) texts.insert(*text);
    }
  }
  return join_words(texts);
}

std::string find_plain_text(const Record& record, std::string_view key) {
  const Value* value = find_value(record, key);
  return value ? plain_text(*value) : "";
}

const Record* find_record(const Record& record, std::string_view key) {
  const Value* value = find_value(record, key);
  return value ? value->get_if<Record>() : nullptr;
}

std::vector<const Record*> find_records(const Record& record, std::string_view key) {
  std::vector<const Record*> records;
  if (const auto* list = find_list(record, key)) {
    for (const Value& item : *list) {
      if (const auto* one = item.get_if<Record>()) records.push_back(one);
    }
  }
  return records;
}

std::vector<std::string> keys_of(const Record& record) {
  std::vector<std::string> keys;
  for (const Field& field : record.fields()) keys.push_back(field.key);
  return keys;
}

}  // namespace tessera
