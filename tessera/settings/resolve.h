// Resolves flags, environment variables, files and defaults to the settings of one run. Records the origin of each
// value.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/base/process.h"
#include "tessera/settings/config_file.h"
#include "tessera/settings/setting.h"

namespace tessera {

// The source of a setting's value.
struct Origin {
  // In ascending precedence.
  enum class Kind { preset, deepspeed_preset, file, deepspeed, environment, flag };
  Kind kind = Kind::preset;
  // "--lr", "TESSERA_LR", "run.toml:3", "ds.json: optimizer.params.lr"; empty for Tessera's default, or why a run
  // settled a default (`auto`) in this way
  std::string place;

  // "flag --lr", "environment TESSERA_LR", "run.toml:3", "ds.json: optimizer.params.lr", "default of DeepSpeed",
  // "default"
  std::string to_string() const;
};

// The value of a setting in one layer (a source of settings, such as a file or the environment), with its origin.
struct LayerValue {
  const Setting* setting;
  SettingValue value;
  Origin origin;
};

// The settings that a verb runs with.
struct ResolvedSettings {
  Settings settings;
  Groups groups = 0;                      // the groups of the verb
  std::map<std::string, Origin> origins;  // by setting name, for every setting of the groups
  std::vector<std::string> warnings;      // for the log, one line each
  int64_t num_ranks = 1;                  // ranks of the run, or of the planned run
  bool of_program = false;                // a program that uses the library gives them, so errors name no flags

  // How an error about a setting names its place: "--lr", "TESSERA_LR", "run.toml:3: lr". For a program: "lr".
  std::string where(const std::string& name) const;
  bool is_given(const std::string& name) const;  // false for Tessera's and DeepSpeed's defaults
  bool is_flag(const std::string& name) const;   // whether its value comes from a flag
};

// The sources of settings. resolve() says which source overrides which.
struct SettingSources {
  std::vector<std::pair<const Setting*, std::string>> flags;  // in the given order; the last one wins
  Environment environment;                                    // only TESSERA_* is used
  std::vector<FileEntry> file;  // an included file's entries come before those of the file that includes it
  int64_t num_ranks = 1;        // ranks that were started; --nproc may set a higher number
  // The options of a program that uses the library, with names or aliases as the program wrote them. They override all
  // other sources; the last one wins. nullopt: the sources belong to a command line.
  std::optional<std::vector<std::pair<std::string, SettingValue>>> options{};
};

// Resolves the settings of `groups`. The precedence is flag > environment > DeepSpeed's file > configuration file >
// DeepSpeed's defaults > Tessera's defaults. A configuration file may also contain settings of other verbs, and tables
// that are named after other verbs of `verb_names`. Such settings and tables are checked and then ignored. The table of
// `verb` overrides the top level of the file and the table [fsdp]. A file overrides the file that it includes. Throws
// UsageError if a key is unknown or a value is invalid. Exception: an unknown TESSERA_ variable only adds a warning.
// The options of a program are checked like the lines of a file, except that they must belong to `groups`.
ResolvedSettings resolve(const SettingSources& sources, Groups groups, const std::string& verb,
                         const std::vector<std::string>& verb_names);

// Whether generation draws tokens at random. If do_sample is given, its value is the answer. Otherwise, the answer is
// true if temperature, top_k or top_p is given. Exception: if a temperature of 0 is given, the answer is always false,
// because each token is then the most likely one.
bool asks_for_sampling(const ResolvedSettings& resolved);

// Checks that settings do not contradict each other (rules/). Throws UsageError.
void check_consistent(const ResolvedSettings& resolved);

// Checks that this build and machine support the settings. Throws UsageError, which names the supported values.
void check_supported(const ResolvedSettings& resolved);

// The settings as TOML, by groups. A comment after each value names its origin. If a run reads this text as its
// configuration file, it gets the same settings.
std::string resolved_config_text(const ResolvedSettings& resolved);

// {"lr": {"value": 5e-05, "origin": "default"}, …} in declaration order.
nlohmann::ordered_json resolved_config_json(const ResolvedSettings& resolved);

}  // namespace tessera
