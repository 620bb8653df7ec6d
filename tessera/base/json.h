// Strict JSON parsing of external files. Only .cc files, and headers that are used within one folder, include this
// header.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace tessera {

// Parses one JSON text. `where` names its file, and the text begins at line `first_line` of this file. Throws
// InputError with line and column for invalid UTF-8 or JSON, and for a pointer of Git LFS (git_lfs.h). Also throws
// InputError for a duplicate key in one object, and for values nested deeper than 64 levels. Callers may therefore use
// recursion on the result. If the text seems to be cut short, the error ends with advice to fetch or write the file
// again. All other errors end with `remedy`, which says what the user should do. Json is nlohmann::json, or
// nlohmann::ordered_json, which keeps the order of keys.
template <typename Json = nlohmann::json>
Json parse_json(std::string_view text, const std::string& where, const std::string& remedy = "",
                int64_t first_line = 1);

// Why a text is not JSON as parse_json() accepts it.
struct JsonFault {
  int64_t line = 0, column = 0;  // from 1; both are 0 if the parser does not know them
  std::string what;
  bool is_cut = false;  // the text seems to be cut short
};
// Like parse_json(), but throws JsonFault, so that the caller can continue with another text.
template <typename Json>
Json parse_json_or_fault(std::string_view text, int64_t first_line);

extern template nlohmann::json parse_json(std::string_view, const std::string&, const std::string&, int64_t);
extern template nlohmann::ordered_json parse_json(std::string_view, const std::string&, const std::string&, int64_t);
extern template nlohmann::ordered_json parse_json_or_fault(std::string_view, int64_t);

}  // namespace tessera
