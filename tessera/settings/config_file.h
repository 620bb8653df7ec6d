// The reader of configuration files: TOML with flat keys, and tables named after verbs, or [fsdp].
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/settings/settings.h"

namespace tessera {

struct FileEntry {
  std::string table;  // "" at the top level
  std::string key;    // as written
  SettingValue value;
  int line = 0;  // from 1
};

// The entries of a TOML text, tables after the top level, in the order of their keys. `name` stands in errors.
// Throws UsageError with file and line when it is not TOML, is too large, has a table within a table, or a value that
// is no text, number or boolean. The table [fsdp] alone may hold a table, whose keys then have its name before them
// ("mixed_precision_policy.param_dtype"), and arrays of texts, which are joined with commas.
std::vector<FileEntry> parse_config(std::string_view text, const std::string& name);

// The whole of a small text file, of at most 16 KiB. Throws UsageError with the remedy when it cannot be read or is
// longer.
std::string read_config_text(const std::string& path, const std::string& remedy);

// The entries of a file. Throws UsageError when it cannot be read.
std::vector<FileEntry> read_config_file(const std::string& path);

}  // namespace tessera
