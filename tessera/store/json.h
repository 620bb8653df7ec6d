// Strict JSON of files that others wrote. Included by .cc files alone.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace tessera {

// InputError at "<where>:<line>": invalid UTF-8 or JSON, a key twice in one object, nested deeper than 64.
nlohmann::json parse_json(std::string_view text, const std::string& where);

}  // namespace tessera
