#include "tessera/app/config_file.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "tessera/base/error.h"

namespace tessera {

namespace {

// Settings are a page of text. The limit also bounds how deep hostile keys (a.a.a.…) nest, because freeing them recurses.
constexpr size_t kMaxFileBytes = 16 * 1024;

std::string place(const std::string& name, int line) { return fmt::format("{}:{}", name, line); }

FileEntry entry_of(const std::string& table, const toml::key& key, const toml::node& node, const std::string& name) {
  FileEntry entry{.table = table, .key = std::string(key.str()), .value = {},
                  .line = static_cast<int>(key.source().begin.line)};
  if (const auto* flag = node.as_boolean()) entry.value = flag->get();
  else if (const auto* whole = node.as_integer()) entry.value = whole->get();
  else if (const auto* number = node.as_floating_point()) entry.value = number->get();
  else if (const auto* text = node.as_string()) entry.value = text->get();
  else {
    const char* kind = node.is_table() ? "a table" : node.is_array() ? "an array" : "a date or time";
    throw UsageError(fmt::format("{}: {}", place(name, entry.line), entry.key),
                     fmt::format("is {}, but settings are texts, numbers and booleans", kind));
  }
  return entry;
}

}  // namespace

std::vector<FileEntry> parse_config(std::string_view text, const std::string& name) {
  if (text.size() > kMaxFileBytes) {
    throw UsageError(name, fmt::format("is {} bytes long, too long for a configuration file", text.size()),
                     fmt::format("The limit is {} bytes", kMaxFileBytes));
  }
  toml::table root;
  try {
    root = toml::parse(text, name);
  } catch (const toml::parse_error& error) {
    throw UsageError(place(name, static_cast<int>(error.source().begin.line)),
                     fmt::format("is not TOML: {}", error.description()), "Texts need quotes, as in lr_schedule = \"linear\"");
  }
  std::vector<FileEntry> entries;
  for (const auto& [key, node] : root) {
    if (!node.is_table()) entries.push_back(entry_of("", key, node, name));
  }
  for (const auto& [table, node] : root) {
    if (!node.is_table()) continue;
    for (const auto& [key, inner] : *node.as_table()) {
      entries.push_back(entry_of(std::string(table.str()), key, inner, name));
    }
  }
  return entries;
}

std::vector<FileEntry> read_config_file(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    throw UsageError(path, "is a folder, not a configuration file");
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    throw UsageError(path, fmt::format("cannot read the configuration file: {}", std::strerror(errno)),
                     "The word after the verb is a TOML file; everything else is given by flags");
  }
  // One byte more than allowed tells a file that is too long, even where it has no end.
  std::string text(kMaxFileBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad()) throw UsageError(path, "cannot read the configuration file");
  text.resize(static_cast<size_t>(file.gcount()));
  return parse_config(text, path);
}

}  // namespace tessera
