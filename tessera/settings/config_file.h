// Reads configuration files: TOML with flat keys, tables named after verbs, and the table [fsdp].
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/settings/setting.h"

namespace tessera {

struct FileEntry {
  std::string table;  // "" at the top level
  std::string key;    // as written
  SettingValue value;
  int line = 0;      // from 1
  std::string file;  // the file's name, as errors show it
};

// The entries of a TOML text: first the top level, then the tables. The top level and each table are sorted by key.
// Every value must be a text, a number, a boolean or an array of texts. The table [fsdp] (or [fsdp_config]) may also
// contain nested tables. The name of a nested table becomes a prefix of its keys
// ("mixed_precision_policy.param_dtype"). In this table, an array becomes one text, joined with commas. Throws
// UsageError if the text is not TOML, is too large, or has a value of another type. Errors name the file as `name`, and
// the line where possible.
std::vector<FileEntry> parse_config(std::string_view text, const std::string& name);

// The texts of a list in an environment variable. It is an array as in TOML, or otherwise one text. Throws UsageError
// if the text begins like an array, but is none.
std::vector<std::string> parse_list(std::string_view text, const std::string& where);

// The content of a text file of at most 16 KiB. Throws UsageError with the remedy if the file is longer or cannot be
// read.
std::string read_config_text(const std::string& path, const std::string& remedy);

// The entries of a file. If it has the key `include`, the entries of the file that this key names come first. The
// included file may itself include a file. The path in `include` is relative to the folder of the file that contains
// the key. Throws UsageError as parse_config() does, and also if a file cannot be read or includes itself, directly or
// through other files.
std::vector<FileEntry> read_config_file(const std::string& path);

}  // namespace tessera
