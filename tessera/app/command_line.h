// The command line: `tessera <verb> [config.toml] [--flags]`.
#pragma once

#include <string>
#include <vector>

#include "tessera/app/verbs.h"

namespace tessera {

// The flags of one verb, as written.
struct ParsedFlags {
  std::vector<std::pair<const Setting*, std::string>> values;  // in the order of declaration; of repeats the last
  std::string config_file;                                     // empty: none
  std::vector<std::string> operands;                           // of a verb that takes them
  bool help = false;
};

// `words` follow the verb. In flags a dash and an underscore are the same; a boolean is --x or --no-x. A word without a
// flag is the configuration file; for a verb with operands it is one of them, unless it ends in ".toml". Throws
// UsageError on unknown flags, missing values and words too many.
ParsedFlags parse_flags(const std::vector<std::string>& words, const Verb& verb, Groups groups);

// Finds the verb in the arguments (without the program's name), resolves its settings and runs it; prints help and
// version. Returns the exit code. Throws Error.
int run_command_line(const std::vector<std::string>& arguments, const Environment& environment,
                     const std::vector<Verb>& verbs);

// run_command_line with every exception told on standard error ("error: …") and turned into its exit code.
int guarded_run(const std::vector<std::string>& arguments, const Environment& environment,
                const std::vector<Verb>& verbs);

}  // namespace tessera
