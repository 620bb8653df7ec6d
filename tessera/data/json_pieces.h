// Finds the parts of a JSON array or object without parsing them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace tessera {

// A value inside a JSON text, as text.
struct JsonPiece {
  std::string_view text;
  int64_t line = 1, column = 1;  // of its first byte, from 1
};
struct JsonMember {
  std::string_view key;  // as written, without the quotes
  JsonPiece value;
};

// The elements of an array, or the members of an object. nullopt if the text has other brackets, commas, colons or
// quotes than one valid array (object). Only this structure is checked: a piece may contain invalid escapes, invalid
// UTF-8, words such as NaN, numbers of any size, duplicate keys, and any depth. So one faulty piece does not hide the
// others.
std::optional<std::vector<JsonPiece>> json_elements(const JsonPiece& array);
std::optional<std::vector<JsonMember>> json_members(const JsonPiece& object);

}  // namespace tessera
