#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>

#include "tessera/base/closest_word.h"
#include "tessera/base/error.h"
#include "tessera/model/architecture.h"
#include "tessera/model/config_reader.h"

namespace tessera {
namespace {

// The words of a text that are separated by spaces.
std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    if (end > begin) words.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

bool has_name(const std::vector<std::string>& names, const std::string& key) {
  return std::ranges::any_of(names, [&](const std::string& name) {
    return name.find('*') == std::string::npos ? name == key : fnmatch(name.c_str(), key.c_str(), FNM_CASEFOLD) == 0;
  });
}

bool is_neutral(const Json& value, const char* neutral) {
  const Json list = Json::parse(neutral);
  return std::ranges::find(list, value) != list.end();
}

// null, "", [] and {} mean that a key is not given.
bool is_given(const Json& value) {
  if (value.is_string()) return !value.get_ref<const std::string&>().empty();
  return !value.empty();
}

bool gives(const Json& config, const std::string& key) {
  const auto found = config.find(key);
  return found != config.end() && is_given(*found);
}

// A row, and the key of the row that a name in a configuration means.
struct MeantKey {
  std::string name;
  const ConfigKeys* row = nullptr;
};

// The rows that apply to an architecture.
class KeyTable {
 public:
  explicit KeyTable(const Architecture& architecture) : type_(architecture.name) {
    for (const ConfigKeys* row : keys_of(architecture)) rows_.push_back({row, words_of(row->names)});
  }

  const std::string& type() const { return type_; }

  // The first row for a key. nullptr if the key is unknown.
  const ConfigKeys* row_of(const std::string& key) const {
    for (const auto& [row, names] : rows_) {
      if (has_name(names, key)) return row;
    }
    return nullptr;
  }

  // The known key that `key` probably means. Without a row if there is none. Long keys may differ by three letters,
  // keys of fewer than five letters by none: published configurations have many keys of other programs.
  MeantKey meant_by(const std::string& key) const {
    constexpr size_t kLongest = 64;
    MeantKey best;
    if (key.size() > kLongest) return best;
    int best_distance = std::min(static_cast<int>(key.size()) / 5, 3) + 1;
    for (const auto& [row, names] : rows_) {
      for (const std::string& name : names) {
        if (name.find('*') != std::string::npos) continue;
        const int distance = name_distance(key, name);
        if (distance < best_distance) best_distance = distance, best = {name, row};
      }
    }
    return best;
  }

 private:
  struct Row {
    const ConfigKeys* row;
    std::vector<std::string> names;
  };
  std::string type_;
  std::vector<Row> rows_;
};

std::string quoted(const std::string& key) {
  return fmt::format("\"{}\"", printable(key, 64));
}

std::string reason(const ConfigKeys& row, const KeyTable& table) {
  return fmt::format(fmt::runtime(row.why), table.type());
}

// Throws InputError if `key` is a misspelt key that matters for this type of model and that the configuration lacks.
void check_spelling(const Json& config, const std::string& key, const KeyTable& table, const std::string& where) {
  const auto& [name, row] = table.meant_by(key);
  if (!row || row->use == KeyUse::unused || row->use == KeyUse::noted) return;
  const std::string meant = row->use == KeyUse::renamed ? words_of(row->why)[0] : name;
  if (gives(config, meant)) return;
  const std::string question = fmt::format("Did you mean \"{}\"?", meant);
  if (row->use != KeyUse::refused) {
    throw InputError(where, fmt::format("has the unknown key {}", quoted(key)),
                     question + " Rename the key, or remove it");
  }
  if (is_neutral(config[key], row->neutral)) return;
  throw InputError(where, fmt::format("{} is {}", quoted(key), in_words(config[key])),
                   fmt::format("{} {}", question, reason(*row, table)));
}

void check_key(const Json& config, const std::string& key, const ConfigKeys& row, const KeyTable& table,
               const std::string& where, std::vector<std::string>& notes) {
  const Json& value = config[key];
  if (row.use == KeyUse::read || row.use == KeyUse::unused || is_neutral(value, row.neutral)) return;
  const bool by_pattern = !std::ranges::count(words_of(row.names), key);
  if (by_pattern) check_spelling(config, key, table, where);
  if (row.use == KeyUse::refused) {
    throw InputError(where, fmt::format("{} is {}", quoted(key), in_words(value)), reason(row, table));
  }
  if (row.use == KeyUse::noted) {
    notes.push_back(
        fmt::format("{}: {} is {}, which has no effect: {}", where, quoted(key), in_words(value), reason(row, table)));
    return;
  }
  const std::vector<std::string> names = words_of(row.why);
  const auto given = std::ranges::find_if(names, [&](const std::string& name) { return gives(config, name); });
  if (given != names.end()) {
    notes.push_back(fmt::format("{}: {} has no effect: models of this type read \"{}\"", where, quoted(key), *given));
    return;
  }
  throw InputError(where,
                   fmt::format("has the key {}, which models of type \"{}\" do not read", quoted(key), table.type()),
                   fmt::format("Did you mean \"{}\"? Rename the key, or remove it", names[0]));
}

}  // namespace

void check_config_keys(const Json& config, const Architecture& architecture, const std::string& where,
                       std::vector<std::string>& notes) {
  constexpr size_t kMostKeys = 1000;  // limits the time for hostile input
  constexpr size_t kShown = 8;
  if (config.size() > kMostKeys) {
    throw InputError(where, fmt::format("has {} keys, more than {}", config.size(), kMostKeys), kOwn);
  }
  const KeyTable table(architecture);
  size_t num_ignored = 0;
  std::string ignored;
  for (const auto& [key, value] : config.items()) {
    if (!is_given(value)) continue;
    if (const ConfigKeys* row = table.row_of(key)) {
      check_key(config, key, *row, table, where, notes);
      continue;
    }
    check_spelling(config, key, table, where);
    if (value == Json(false)) continue;
    if (++num_ignored <= kShown) ignored += (num_ignored > 1 ? ", " : "") + quoted(key);
  }
  if (num_ignored == 0) return;
  if (num_ignored > kShown) ignored += fmt::format(" and {} more", num_ignored - kShown);
  notes.push_back(
      fmt::format("{}: Tessera ignores keys that models of type \"{}\" do not have: {}", where, table.type(), ignored));
}

void check_rope_keys(const Json& parameters, const std::string& rope_type, const std::string& where) {
  std::vector<std::string> names;
  for (const RopeKeys& row : rope_keys()) {
    for (std::string& name : words_of(row.names)) names.push_back(std::move(name));
  }
  for (const auto& [key, value] : parameters.items()) {
    if (!is_given(value)) continue;
    const std::string& name = key;  // a lambda may not capture a structured binding (clang)
    const auto known =
        std::ranges::find_if(rope_keys(), [&](const RopeKeys& row) { return has_name(words_of(row.names), name); });
    if (known == rope_keys().end() && value.is_object()) {
      throw InputError(where, fmt::format("{} is an object", quoted(key)),
                       "Tessera supports only one set of rotary positions, for all layers. Put its keys directly into "
                       "the outer object");
    }
    if (known == rope_keys().end()) {
      const std::string meant = did_you_mean(key, names);
      throw InputError(where, fmt::format("has the unknown key {}", quoted(key)),
                       meant + (meant.empty() ? "Remove the key, if the model was trained without it"
                                              : " Rename the key, or remove it"));
    }
    const bool is_read =
        known->readers == std::string_view("*") || std::ranges::count(words_of(known->readers), rope_type);
    if (is_read || !known->neutral || is_neutral(value, known->neutral)) continue;
    std::string readers = known->readers;
    for (size_t i = readers.find(' '); i != std::string::npos; i = readers.find(' ', i + 2))
      readers.replace(i, 1, ", ");
    if (readers.empty()) {
      throw InputError(where, fmt::format("{} is {}", quoted(key), in_words(value)),
                       "Tessera does not support this key");
    }
    throw InputError(
        where,
        fmt::format("{} is {}, but rope type \"{}\" does not read this key", quoted(key), in_words(value), rope_type),
        fmt::format("Set \"rope_type\" to the type of the model (with this key: {}), or remove the key", readers));
  }
}

}  // namespace tessera
