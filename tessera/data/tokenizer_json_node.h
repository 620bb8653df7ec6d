// A value in a tokenizer.json, and the value's place in the file. Errors name this place.
#pragma once

#include <string>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/json.h"

namespace tessera {

inline constexpr const char* kDamagedTokenizer = "The file is damaged: use the tokenizer.json that came with the model";
inline constexpr const char* kKindsOfTokenizers =
    "Tessera reads BPE tokenizers, either byte-level (BLOOM, GPT-2, Llama 3, Qwen) or of SentencePiece's style (Llama "
    "2, "
    "Mistral)";

struct TokenizerNode {
  const nlohmann::json& json;
  std::string where;

  [[noreturn]] void fail(const std::string& what, const std::string& remedy = kDamagedTokenizer) const {
    throw InputError(where, what, remedy);
  }
  std::string child(const std::string& key) const { return where + (where.ends_with(": ") ? "" : ".") + key; }
  TokenizerNode operator[](size_t i) const { return {json[i], where + "[" + std::to_string(i) + "]"}; }
  // The value of a required key.
  TokenizerNode at(const char* key) const {
    if (!json.is_object()) fail(std::string("expected an object, found ") + json.type_name());
    const auto found = json.find(key);
    if (found == json.end()) fail(std::string("the key \"") + key + "\" is missing");
    return {*found, child(key)};
  }
  // Whether the key has a value other than null.
  bool has(const char* key) const {
    if (!json.is_object()) return false;
    const auto found = json.find(key);
    return found != json.end() && !found->is_null();
  }
  const std::string& text() const {
    if (!json.is_string()) fail(std::string("expected a string, found ") + json.type_name());
    return json.get_ref<const std::string&>();
  }
  bool flag() const {
    if (!json.is_boolean()) fail(std::string("expected true or false, found ") + json.type_name());
    return json.get<bool>();
  }
  bool flag(const char* key, bool otherwise) const { return has(key) ? at(key).flag() : otherwise; }
  size_t count() const {
    if (!json.is_number_unsigned()) fail("expected a whole number, found " + json.dump());
    return json.get<size_t>();
  }
  size_t array_size() const {
    if (!json.is_array()) fail(std::string("expected an array, found ") + json.type_name());
    return json.size();
  }
  std::string type() const { return at("type").text(); }
};

}  // namespace tessera
