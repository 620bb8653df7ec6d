#include "tessera/data/field_names.h"

#include <algorithm>

namespace tessera {

namespace {

bool is_of_message(std::string_view field) {
  constexpr std::string_view kFields[] = {"role", "content", "from", "value", "tool_calls"};
  return std::ranges::find(kFields, field) != std::end(kFields);
}

}  // namespace

const std::vector<std::string>& FieldNames::all() {
  static const std::vector<std::string> names = {
      "id",      "messages",    "conversations", "tools",    "chat_template_kwargs",
      "system",  "instruction", "input",         "output",   "history",
      "prompt",  "completion",  "text",          "question", "context",
      "answers", "answer",      "is_impossible", "role",     "content",
      "from",    "value",       "tool_calls"};
  return names;
}

std::string FieldNames::rename(const std::string& field, const std::string& key) {
  for (const auto& [other, taken] : keys_) {
    if (taken == key && is_of_message(other) == is_of_message(field)) return other;
  }
  keys_[field] = key;
  return "";
}

const char* FieldNames::key(const char* field) const {
  if (const auto renamed = keys_.find(std::string_view(field)); renamed != keys_.end()) return renamed->second.c_str();
  const bool is_taken = std::ranges::any_of(keys_, [&](const auto& item) {
    return item.second == field && is_of_message(item.first) == is_of_message(field);
  });
  return is_taken ? nullptr : field;
}

std::string FieldNames::text() const {
  std::string text;
  for (const std::string& field : all()) {
    const auto renamed = keys_.find(field);
    if (renamed != keys_.end()) text += (text.empty() ? "" : ",") + field + "=" + renamed->second;
  }
  return text;
}

}  // namespace tessera
