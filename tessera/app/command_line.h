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
  std::vector<std::string> operands;                           // of a verb that takes them
  bool help = false;
  bool full_help = false;  // --help all
};

// `words` follow the verb, one of `verbs`. In flags a dash and an underscore are the same; a boolean is --x or --no-x.
// A word without a flag is the configuration file; for a verb with operands it is one of them, unless it ends in
// ".toml". Throws UsageError on unknown flags, missing values and words too many.
ParsedFlags parse_flags(const std::vector<std::string>& words, const Verb& verb, Groups groups,
                        const std::vector<Verb>& verbs);

// Finds the verb that `words` begin with, by their first two words or the first one, and removes its name from them.
// Returns nullptr if no verb matches.
const Verb* take_verb(std::vector<std::string>& words, const std::vector<Verb>& verbs);

// Reads the configuration file `word` of a command; empty: none. `words` are those after the verb, for the remedy if
// there is no such file. Throws UsageError.
std::vector<FileEntry> config_of(const std::string& word, const std::vector<std::string>& words, Groups groups,
                                 const std::vector<Verb>& verbs);

// The names of all verbs. They are the permitted tables of a configuration file.
std::vector<std::string> names_of(const std::vector<Verb>& verbs);

// Removes the command of another verb from the words of a verb that takes one, and returns it. It begins with the first
// word that is neither a flag of `groups` nor its value. A request for help stays.
std::vector<std::string> take_command(std::vector<std::string>& words, Groups groups);

// Resolves the words after a verb that needs no other verb: a configuration file and flags. Throws UsageError.
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
