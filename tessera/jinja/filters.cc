#include "tessera/jinja/filters.h"

#include <algorithm>

#include "tessera/base/error.h"

namespace tessera::jinja {

void Arguments::take(std::string_view function, const char* const* names, size_t count, size_t required,
                     Value* out) const {
  if (positional.size() > count) {
    throw Fault{std::string(function) + " takes at most " + std::to_string(count) + " arguments, not " +
                std::to_string(positional.size())};
  }
  std::copy(positional.begin(), positional.end(), out);
  for (const auto& [name, value] : named) {
    const auto at = static_cast<size_t>(std::find(names, names + count, name) - names);
    if (name.empty() || at == count) throw Fault{std::string(function) + " has no parameter " + printable(name)};
    if (!out[at].is_missing()) throw Fault{std::string(function) + " has two values for the parameter " + name};
    out[at] = value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (out[i].is_missing())
      throw Fault{std::string(function) + " needs at least " + std::to_string(required) + " arguments"};
  }
}

const Filter* find_filter(std::string_view name) {
  for (const auto& table : {number_filters(), text_filters(), sequence_filters()}) {
    const auto found = std::ranges::find_if(table, [&](const Filter& filter) { return name == filter.name; });
    if (found != table.end()) return &*found;
  }
  return nullptr;
}

std::vector<std::string> filter_names() {
  std::vector<std::string> names;
  for (const auto& table : {number_filters(), text_filters(), sequence_filters()}) {
    for (const Filter& filter : table) names.emplace_back(filter.name);
  }
  std::ranges::sort(names);
  return names;
}

}  // namespace tessera::jinja
