// Strict JSON of files that others wrote. Included by .cc files alone.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace tessera {

// One JSON text. `where` names the file it is from, whose line `first_line` it begins. InputError with line and column
// for invalid UTF-8 or JSON; for a key twice in one object or values nested deeper than 64, so that reading and writing
// what is returned may recurse.
// Json is nlohmann::json, or nlohmann::ordered_json, which keeps the order of keys.
template <typename Json = nlohmann::json>
Json parse_json(std::string_view text, const std::string& where, const std::string& remedy = "",
                int64_t first_line = 1);

extern template nlohmann::json parse_json(std::string_view, const std::string&, const std::string&, int64_t);
extern template nlohmann::ordered_json parse_json(std::string_view, const std::string&, const std::string&, int64_t);

}  // namespace tessera
