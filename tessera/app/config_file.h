// The reader of configuration files: TOML with flat keys, and tables named after verbs.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/app/settings.h"

namespace tessera {

struct FileEntry {
  std::string table;  // "" at the top level
  std::string key;    // as written
  SettingValue value;
  int line = 0;  // from 1
};

// The entries of a TOML text, tables after the top level, in the order of their keys. `name` stands in errors.
// Throws UsageError with file and line when it is not TOML, is too large, has a table within a table, or a value that
// is no text, number or boolean.
std::vector<FileEntry> parse_config(std::string_view text, const std::string& name);

// The same of a file. Throws UsageError when it cannot be read.
std::vector<FileEntry> read_config_file(const std::string& path);

}  // namespace tessera
