#include "tessera/settings/config_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>

#include "tessera/base/error.h"
#include "tessera/base/read_file.h"
#include "tessera/base/text.h"
#include "tessera/settings/toml_library.h"

namespace tessera {

namespace fs = std::filesystem;

namespace {

// The maximum size of a file, far more than real settings need. The limit also bounds the depth of hostile keys
// (a.a.a.…): toml++ frees nested tables recursively, so a very deep key would overflow the stack.
constexpr size_t kMaxFileBytes = 16 * 1024;

bool is_fsdp(const std::string& table) {
  return table == "fsdp" || table == "fsdp_config";
}

std::string place(const std::string& name, int line) {
  return fmt::format("{}:{}", name, line);
}

FileEntry entry_of(const std::string& table, const toml::key& key, const toml::node& node, const std::string& name) {
  FileEntry entry{.table = table,
                  .key = std::string(key.str()),
                  .value = {},
                  .line = static_cast<int>(key.source().begin.line),
                  .file = name};
  if (const auto* flag = node.as_boolean())
    entry.value = flag->get();
  else if (const auto* whole = node.as_integer())
    entry.value = whole->get();
  else if (const auto* number = node.as_floating_point())
    entry.value = number->get();
  else if (const auto* text = node.as_string())
    entry.value = text->get();
  else if (const auto texts = texts_in(node))
    entry.value = is_fsdp(table) ? SettingValue(joined(*texts, ",")) : SettingValue(*texts);
  else {
    const char* kind = node.is_table() ? "a table" : node.is_array() ? "an array" : "a date or time";
    throw UsageError(fmt::format("{}: {}", place(name, entry.line), entry.key),
                     fmt::format("is {}, but a setting must be a text, a number or a boolean", kind));
  }
  return entry;
}

}  // namespace

std::optional<std::vector<std::string>> texts_in(const toml::node& node) {
  if (!node.is_array()) return std::nullopt;
  std::vector<std::string> texts;
  for (const auto& element : *node.as_array()) {
    if (!element.is_string()) return std::nullopt;
    texts.push_back(element.as_string()->get());
  }
  return texts;
}

std::vector<std::string> parse_list(std::string_view text, const std::string& where) {
  if (!text.starts_with('[')) return {std::string(text)};
  try {
    const toml::table table = toml::parse("list = " + std::string(text));
    const auto texts = texts_in(*table.get("list"));
    if (table.size() == 1 && texts) return *texts;
  } catch (const toml::parse_error&) {
  }
  throw UsageError(where, fmt::format("is not a list of texts: {}", quoted_value(std::string(text))),
                   R"(Write it as in ["a.jsonl", "b.jsonl"])");
}

toml::table parse_toml(std::string_view text, const std::string& name) {
  if (text.size() > kMaxFileBytes) {
    throw UsageError(name, fmt::format("has {} bytes; the limit is {} bytes", text.size(), kMaxFileBytes));
  }
  try {
    return toml::parse(text, name);
  } catch (const toml::parse_error& error) {
    throw UsageError(place(name, static_cast<int>(error.source().begin.line)),
                     fmt::format("is not TOML: {}", error.description()),
                     "Put texts in quotes, for example lr_schedule = \"linear\"");
  }
}

std::vector<FileEntry> parse_config(std::string_view text, const std::string& name) {
  const toml::table root = parse_toml(text, name);
  std::vector<FileEntry> entries;
  for (const auto& [key, node] : root) {
    if (!node.is_table()) entries.push_back(entry_of("", key, node, name));
  }
  for (const auto& [table, node] : root) {
    if (!node.is_table()) continue;
    const std::string table_name(table.str());
    for (const auto& [key, inner] : *node.as_table()) {
      if (!is_fsdp(table_name) || !inner.is_table()) {
        entries.push_back(entry_of(table_name, key, inner, name));
        continue;
      }
      for (const auto& [inner_key, value] : *inner.as_table()) {
        entries.push_back(entry_of(table_name, inner_key, value, name));
        entries.back().key = fmt::format("{}.{}", key.str(), entries.back().key);
      }
    }
  }
  return entries;
}

std::string read_config_text(const std::string& path, const std::string& remedy) {
  try {
    return read_file(path, {.remedy = remedy, .longest_bytes = kMaxFileBytes, .pipes = true});
  } catch (const InputError& error) {
    throw UsageError("", error.what());
  }
}

namespace {

// Removes the key `include` from the entries of a file. Returns the path of the included file, or "" without this key.
std::string take_include(std::vector<FileEntry>& entries) {
  const auto found = std::ranges::find_if(
      entries, [](const FileEntry& entry) { return entry.table.empty() && entry.key == "include"; });
  if (found == entries.end()) return "";
  const std::string where = fmt::format("{}: include", place(found->file, found->line));
  const auto* text = std::get_if<std::string>(&found->value);
  if (!text || text->empty()) {
    throw UsageError(where, fmt::format("must be the path of a TOML file, got {}", quoted_value(found->value)),
                     "Write for example include = \"base.toml\". The path is relative to the folder of this file");
  }
  const fs::path path = (fs::path(found->file).parent_path() / *text).lexically_normal();
  entries.erase(found);
  return path.string();
}

}  // namespace

std::vector<FileEntry> read_config_file(const std::string& path) {
  std::vector<FileEntry> all;
  std::vector<fs::path> chain;
  std::string remedy = "The argument after the verb must be a TOML file. Give everything else as flags", includer;
  for (std::string file = path; !file.empty();) {
    std::error_code none;
    const fs::path identity = fs::weakly_canonical(file, none);
    if (std::ranges::find(chain, identity) != chain.end()) {
      throw UsageError(includer + ": include",
                       fmt::format("{} already includes this file, directly or through other files", file),
                       "Remove one of the include lines");
    }
    chain.push_back(identity);
    std::vector<FileEntry> entries = parse_config(read_config_text(file, remedy), file);
    includer = file;
    remedy = fmt::format("{0} includes this file. The path after include is relative to the folder of {0}", file);
    file = take_include(entries);
    all.insert(all.begin(), std::make_move_iterator(entries.begin()), std::make_move_iterator(entries.end()));
  }
  return all;
}

}  // namespace tessera
