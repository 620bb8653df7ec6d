#include "tessera/report/summary_values.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <set>

#include "tessera/base/text.h"

namespace tessera {

namespace {

const Record* find_value(const Record& record, std::string_view key) {
  if (!record.is_object()) return nullptr;
  if (const auto it = record.find(key); it != record.end()) return &*it;
  for (size_t dot = key.find('.'); dot != key.npos; dot = key.find('.', dot + 1)) {
    const auto inner = record.find(key.substr(0, dot));
    const Record* value = inner == record.end() ? nullptr : find_value(*inner, key.substr(dot + 1));
    if (value) return value;
  }
  return nullptr;
}

std::optional<double> number_of(const Record& value) {
  if (!value.is_number()) return {};
  const auto number = value.get<double>();
  return std::isfinite(number) ? std::optional(number) : std::nullopt;
}

const Record* find_list(const Record& record, std::string_view key) {
  const Record* value = find_value(record, key);
  return value && value->is_array() ? value : nullptr;
}

std::string plain_text(const Record& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean()) return value.get<bool>() ? "true" : "false";
  if (value.is_number_integer()) return std::to_string(value.get<int64_t>());
  if (value.is_number()) return fmt::format("{}", value.get<double>());
  std::vector<std::string> texts;
  if (value.is_array()) {
    for (const Record& item : value) texts.push_back(plain_text(item));
  }
  return joined(texts);
}

}  // namespace

bool has_value(const Record& record, std::string_view key) {
  return find_value(record, key) != nullptr;
}

bool is_null(const Record& record, std::string_view key) {
  const Record* value = find_value(record, key);
  return value && value->is_null();
}

std::optional<double> find_number(const Record& record, std::string_view key) {
  const Record* value = find_value(record, key);
  return value ? number_of(*value) : std::nullopt;
}

std::vector<double> find_numbers(const Record& record, std::string_view key) {
  std::vector<double> numbers;
  if (const auto number = find_number(record, key)) numbers.push_back(*number);
  if (const auto* list = find_list(record, key)) {
    for (const Record& item : *list) {
      if (const auto number = number_of(item)) numbers.push_back(*number);
    }
  }
  return numbers;
}

std::string find_text(const Record& record, std::string_view key) {
  const Record* value = find_value(record, key);
  return value && value->is_string() ? value->get<std::string>() : "";
}

std::string find_texts(const Record& record, std::string_view key) {
  std::set<std::string> texts;
  if (const auto* list = find_list(record, key)) {
    for (const Record& item : *list) {
      if (item.is_string()) texts.insert(item.get<std::string>());
    }
  }
  return joined(texts);
}

std::string find_plain_text(const Record& record, std::string_view key) {
  const Record* value = find_value(record, key);
  return value ? plain_text(*value) : "";
}

const Record* find_record(const Record& record, std::string_view key) {
  const Record* value = find_value(record, key);
  return value && value->is_object() ? value : nullptr;
}

std::vector<const Record*> find_records(const Record& record, std::string_view key) {
  std::vector<const Record*> records;
  if (const auto* list = find_list(record, key)) {
    for (const Record& item : *list) {
      if (item.is_object()) records.push_back(&item);
    }
  }
  return records;
}

std::vector<std::string> keys_of(const Record& record) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : record.items()) keys.push_back(key);
  return keys;
}

}  // namespace tessera
