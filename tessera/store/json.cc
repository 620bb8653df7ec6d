#include "tessera/store/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/store/file.h"

namespace tessera {

nlohmann::json parse_json(std::string_view text, const std::string& where) {
  using Event = nlohmann::json::parse_event_t;
  constexpr int kDeepest = 64;
  std::vector<std::set<std::string>> keys;  // of the objects that are open
  const auto watch = [&](int depth, Event event, nlohmann::json& value) {
    if (depth > kDeepest) throw InputError(where, fmt::format("is nested deeper than {} levels", kDeepest));
    if (event == Event::object_start) keys.emplace_back();
    if (event == Event::object_end) keys.pop_back();
    if (event == Event::key && !keys.back().insert(value.get<std::string>()).second) {
      throw InputError(where, fmt::format("has the key \"{}\" twice", printable(value.get<std::string>())));
    }
    return true;
  };
  // The library takes a zero byte for the end of the text.
  if (text.find('\0') != text.npos) throw InputError(where, "is not JSON: it holds a zero byte");
  try {
    return nlohmann::json::parse(text, watch);
  } catch (const nlohmann::json::parse_error& error) {
    const auto end = text.begin() + static_cast<std::ptrdiff_t>(std::min(error.byte, text.size()));
    const auto line = 1 + std::count(text.begin(), end, '\n');
    throw InputError(fmt::format("{}:{}", where, line), "is not valid JSON in UTF-8", "Copy or write the file again");
  }
}

}  // namespace tessera
