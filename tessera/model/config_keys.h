// What Tessera does with each key of a config.json. docs/config-keys.md shows the same tables; a test compares them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tessera/base/json.h"

namespace tessera {

using Json = nlohmann::ordered_json;

// Model types, as bits of ConfigKeys::types.
enum : uint32_t {
  kLlamaType = 1,
  kMistralType = 2,
  kQwen2Type = 4,
  kQwen3Type = 8,
  kBloomType = 16,
  kGptType = 32,
  kLlamaLike = kLlamaType | kMistralType | kQwen2Type | kQwen3Type,
  kAnyType = kLlamaLike | kBloomType | kGptType,
};
inline constexpr const char* kTypeNames[] = {"llama", "mistral", "qwen2", "qwen3", "bloom", "gpt"};  // by bit

enum class KeyUse : uint8_t {
  read,     // Tessera reads the key
  unused,   // the key has no effect on what the model computes
  noted,    // models of this type ignore the key, and a value that is not neutral gives a note
  refused,  // a value that is not neutral is an error: it changes the computation, or it looks as if it should
  renamed,  // a name that other types or programs give to the key `why`. An error if the key `why` is missing
};

// One row of the table. The first row that has a key and a type counts.
struct ConfigKeys {
  const char* names;  // one or several keys, separated by spaces. A name with * is a pattern of letters, without case
  uint32_t types;     // the row applies to these model types
  KeyUse use;
  const char* neutral;  // a JSON list: values that change nothing. null, "", [] and {} are always neutral
  // Renamed: the key to use instead, then its other names. Otherwise: the reason or the remedy, a sentence without dot.
  const char* why;
};
std::span<const ConfigKeys> config_keys();

// A key inside "rope_parameters" or "rope_scaling".
struct RopeKeys {
  const char* names;    // as in ConfigKeys
  const char* readers;  // the rope types that read the key, separated by spaces; "*": all
  const char* neutral;  // as in ConfigKeys; for the other rope types. nullptr: they ignore every value
};
std::span<const RopeKeys> rope_keys();

// Checks the names and values of all keys of a config.json. `type` is its model type, `where` its path. Throws
// InputError if a value is refused, or if an unknown key seems to be a misspelt key that is missing. Adds a line to
// `notes` for keys that are ignored and might matter to the user.
void check_config_keys(const Json& config, const std::string& type, const std::string& where,
                       std::vector<std::string>& notes);

// Checks the keys of `parameters`, which is "rope_parameters" or "rope_scaling". Throws InputError.
void check_rope_keys(const Json& parameters, const std::string& rope_type, const std::string& where);

}  // namespace tessera
