// The command line: `tessera <verb> [config.toml] [--flags]`.
#pragma once

#include <string>
#include <vector>

#include "tessera/app/verbs.h"

namespace tessera {

// The flags of one verb, with their values as written.
struct ParsedFlags {
  std::vector<std::pair<const Setting*, std::string>> values;  // in the order of declaration; the last one of repeats
  std::string config_file;                                     // empty: none
  bool help = false;
  bool full_help = false;  // --help all
};

// `words` follow the verb, one of `verbs`. In flags a dash and an underscore are the same; a boolean is --x or --no-x.
// Throws UsageError on unknown flags, missing values and more than one other word.
ParsedFlags parse_flags(const std::vector<std::string>& words, const Verb& verb, Groups groups,
                        const std::vector<Verb>& verbs);

// Resolves the words behind a verb that runs alone: a configuration file and flags. Throws UsageError.
ResolvedSettings resolve_words(const std::vector<std::string>& words, const Environment& environment, const Verb& verb,
                               const std::vector<Verb>& verbs);
// Checks that the settings are consistent, supported and sufficient for the verb. Throws UsageError.
void check_settings(const Verb& verb, const ResolvedSettings& resolved);

// Finds the verb in the arguments (without the program's name), resolves its settings and runs it. Also prints help and
// version. Returns the exit code. Throws Error.
int run_command_line(const std::vector<std::string>& arguments, const Environment& environment,
                     const std::vector<Verb>& verbs);

// Runs the command line. Prints every exception on standard error as "error: …" and returns its exit code.
int guarded_run(const std::vector<std::string>& arguments, const Environment& environment,
                const std::vector<Verb>& verbs);

}  // namespace tessera
