// From flags, environment, file and defaults to the settings of one run, each with where it came from.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/base/process.h"
#include "tessera/settings/config_file.h"
#include "tessera/settings/settings.h"

namespace tessera {

// Where a setting's value came from.
struct Origin {
  // The weakest first.
  enum class Kind { preset, deepspeed_preset, file, deepspeed, environment, flag };
  Kind kind = Kind::preset;
  // "--lr", "TESSERA_LR", "run.toml:3", "ds.json: optimizer.params.lr"; empty for a default
  std::string place;

  // "flag --lr", "environment TESSERA_LR", "run.toml:3", "ds.json: optimizer.params.lr", "default of DeepSpeed",
  // "default"
  std::string to_string() const;
};

// A setting's value with where it came from, in a layer of the resolution.
struct LayerValue {
  const Setting* setting;
  SettingValue value;
  Origin origin;
};

// What a verb runs with.
struct ResolvedSettings {
  Settings settings;
  Groups groups = 0;                      // the verb's
  std::map<std::string, Origin> origins;  // by setting name, for every setting of the groups
  std::vector<std::string> warnings;      // for the log, one line each
  int64_t num_ranks = 1;                  // that take part, or are planned for

  // The place to name in an error about a setting: "--lr", "TESSERA_LR", "run.toml:3: lr".
  std::string where(const std::string& name) const;
  bool is_given(const std::string& name) const;  // not a default, nor one of DeepSpeed
};

// The layers, the strongest first.
struct SettingSources {
  std::vector<std::pair<const Setting*, std::string>> flags;  // in the order given; the last one counts
  Environment environment;                                    // TESSERA_*; other variables are ignored
  std::vector<FileEntry> file;
  std::string file_name;
  int64_t num_ranks = 1;  // as which the process was started; --nproc may ask for more
};

// Settings of `groups` by the precedence flag > environment > DeepSpeed's file > file > DeepSpeed's defaults > default.
// A file may hold settings of other verbs (they are checked and ignored), and tables of other verbs among `verb_names`;
// the table of `verb` goes before its top level and the table [fsdp]. Throws UsageError on an unknown key or a value
// that is wrong in itself. An unknown TESSERA_ variable gives a warning.
ResolvedSettings resolve(const SettingSources& sources, Groups groups, const std::string& verb,
                         const std::vector<std::string>& verb_names);

// Checks settings against each other. Throws UsageError.
void check_consistent(const ResolvedSettings& resolved);
// The part of it about sharding, offload and loss scaling.
void check_sharding(const ResolvedSettings& resolved);

// Checks settings against what this build can do. Throws UsageError that says what it can. The one place to relax when
// a back end arrives.
void check_supported(const ResolvedSettings& resolved);

// The settings as TOML, grouped, each with a comment that tells its origin. Reading it back gives the same settings.
std::string resolved_config_text(const ResolvedSettings& resolved);

// {"lr": {"value": 5e-05, "origin": "default"}, …} in the order of declaration.
nlohmann::ordered_json resolved_config_json(const ResolvedSettings& resolved);

}  // namespace tessera
