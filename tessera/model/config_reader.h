// Reads values from a config.json.
#pragma once

#include <fmt/format.h>

#include <string>

#include "tessera/base/error.h"
#include "tessera/base/json.h"
#include "tessera/model/config.h"
#include "tessera/model/config_keys.h"

namespace tessera {

// The upper limit for most sizes in a config.json, such as hidden_size. Real models have smaller sizes. The product of
// two sizes up to this limit fits into 64 bits.
inline constexpr int64_t kMaxDimension = int64_t{1} << 24;
inline constexpr int64_t kMaxLayers = 100000;
inline constexpr const char* kOwn = "Use the model's own config.json";

// Describes a value for an error message. Does not print lists and objects: they may be long and deeply nested, and
// printing is recursive.
inline std::string in_words(const Json& value) {
  if (value.is_structured()) return std::string("an ") + value.type_name();
  const std::string text = value.dump();
  return text.size() <= 80 ? text : fmt::format("a string of {} bytes", text.size());
}

// Reads typed values from one JSON object. If a function takes several keys, they are alternatives: the first key that
// is present and not null counts. If there is no such key, the function returns `fallback`. Exception: integer() throws
// an error if `fallback` is negative, or if two of the keys have different values. Errors name key and value.
class ConfigReader {
 public:
  ConfigReader(const Json& json, const std::string& where) : json_(json), where_(where) {}

  // Whether the key is present with the value null.
  bool is_null(const char* name) const {
    const auto it = json_.find(name);
    return it != json_.end() && it->is_null();
  }
  bool has(const char* name) const {
    const char* key = nullptr;
    return find({name}, key) != nullptr;
  }

  int64_t integer(std::initializer_list<const char*> keys, int64_t fallback, int64_t low, int64_t high) const {
    const char* key = nullptr;
    const Json* value = find(keys, key);
    if (!value) {
      if (fallback >= 0) return fallback;
      throw InputError(where_, fmt::format("the key \"{}\" is missing", *keys.begin()), kOwn);
    }
    if (!value->is_number_integer() || *value < low || *value > high) {
      throw InputError(where_,
                       fmt::format("\"{}\" is {}, not a whole number from {} to {}", key, in_words(*value), low, high));
    }
    for (const char* other : keys) {
      if (!has(other) || *this->value(other) == *value) continue;
      throw InputError(
          where_,
          fmt::format("\"{}\" is {}, but \"{}\" is {}", key, in_words(*value), other, in_words(*this->value(other))),
          "Both keys mean the same: remove one of them");
    }
    return value->get<int64_t>();
  }

  double number(std::initializer_list<const char*> keys, double fallback, double low, double high) const {
    const char* key = nullptr;
    const Json* value = find(keys, key);
    if (!value) return fallback;
    if (!value->is_number() || !(value->get<double>() >= low && value->get<double>() <= high)) {
      throw InputError(where_,
                       fmt::format("\"{}\" is {}, not a number from {} to {}", key, in_words(*value), low, high));
    }
    return value->get<double>();
  }

  std::string text(const char* name, const char* fallback) const {
    const char* key = nullptr;
    const Json* value = find({name}, key);
    if (!value) return fallback;
    if (!value->is_string()) throw InputError(where_, fmt::format("\"{}\" is {}, not a string", key, in_words(*value)));
    return value->get<std::string>();
  }

  // The value of a key. nullptr if the key is missing or its value is null.
  const Json* value(const char* name) const {
    const char* key = nullptr;
    return find({name}, key);
  }
  const std::string& where() const { return where_; }

  bool boolean(const char* name, bool fallback) const {
    const char* key = nullptr;
    const Json* value = find({name}, key);
    if (!value) return fallback;
    if (!value->is_boolean())
      throw InputError(where_, fmt::format("\"{}\" is {}, not true or false", key, in_words(*value)));
    return value->get<bool>();
  }

 private:
  const Json* find(std::initializer_list<const char*> keys, const char*& found) const {
    for (const char* key : keys) {
      found = key;
      if (const auto it = json_.find(key); it != json_.end() && !it->is_null()) return &*it;
    }
    return nullptr;
  }

  const Json& json_;
  const std::string& where_;
};

// The ids of "eos_token_id", which is an id or a list of ids. Leaves out values that are no id of the vocabulary, and
// adds a line to `notes` for each of them: an end token that no training and no generation can use is no error.
std::vector<int32_t> read_end_ids(const ConfigReader& read, int64_t vocab_size, std::vector<std::string>& notes);
// The id of another token, for example "pad_token_id". -1 if the key is missing or null. Adds a line to `notes` and
// returns -1 if the value is no id of the vocabulary: Tessera only writes these ids.
int32_t read_token_id(const ConfigReader& read, const char* key, int64_t vocab_size, std::vector<std::string>& notes);

// Makes `end_id` one of the ids of "eos_token_id" in `file`, a config.json or generation_config.json. The ids that the
// file has remain. -1 changes nothing.
void add_end_id(Json& file, int32_t end_id);

// Sets a key of a config.json to save, unless the file that was read has the key.
inline void set_default(Json& json, const char* key, const Json& value) {
  if (!json.contains(key)) json[key] = value;
}

}  // namespace tessera
