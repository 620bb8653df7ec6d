// The command line: `tessera <verb> [config.toml] [--flags]`.
#pragma once

#include <string>
#include <vector>

#include "tessera/app/verbs.h"

namespace tessera {

// The words after a verb, by kind: flags with their values as written, the configuration file, and operands.
struct ParsedFlags {
  // In the order of the settings' declarations. If a flag is repeated, its last value counts.
  std::vector<std::pair<const Setting*, std::string>> values;
  std::string config_file;            // empty: none
  std::vector<std::string> operands;  // other words without a flag; only for a verb that takes such words
  bool help = false;
  bool full_help = false;             // --help all
  std::vector<std::string> warnings;  // about arguments of other trainers, which have no effect
};

// Parses the words after `verb`, which is one of `verbs`. `groups`: only settings of these groups are accepted as
// flags. In flags, dashes and underscores are the same; a boolean is --x or --no-x. A word that is neither a flag nor
// the value of a flag is the configuration file. For a verb with operands, such a word is the configuration file only
// if it ends in ".toml"; the other words are operands. Throws UsageError on unknown flags, missing values and too many
// words.
ParsedFlags parse_flags(const std::vector<std::string>& words, const Verb& verb, Groups groups,
                        const std::vector<Verb>& verbs);

// Finds the verb that `words` begin with: a verb of two words if one matches, otherwise a verb of one word. Removes the
// verb's name from `words`. Returns nullptr if no verb matches.
const Verb* take_verb(std::vector<std::string>& words, const std::vector<Verb>& verbs);

// Reads the configuration file with the path `word`. Returns no entries if `word` is empty. Throws UsageError if `word`
// is not a configuration file. `words`: all words after the verb, for the remedy in this error.
std::vector<FileEntry> config_of(const std::string& word, const std::vector<std::string>& words, Groups groups,
                                 const std::vector<Verb>& verbs);

// The names of all verbs. They are the permitted tables of a configuration file.
std::vector<std::string> names_of(const std::vector<Verb>& verbs);

// `words`: the words after a verb that takes the command of another verb (slurm). Removes this command from `words` and
// returns it. The command begins with the first word that is neither a flag nor the value of a flag of `groups`. If any
// word asks for help, only the request for help stays in `words`, and the command is empty.
std::vector<std::string> take_command(std::vector<std::string>& words, Groups groups);

// Resolves the settings of `verb` from `words` (a configuration file and flags) and the environment. `verb` must not be
// `config` or `slurm`, because another verb may follow them. Throws UsageError.
ResolvedSettings resolve_words(const std::vector<std::string>& words, const Environment& environment, const Verb& verb,
                               const std::vector<Verb>& verbs);
// Checks that the settings are consistent, supported and sufficient for the verb. Throws UsageError.
void check_settings(const Verb& verb, const ResolvedSettings& resolved);

// Finds the verb in the arguments (without the program's name), resolves its settings and runs it. Also prints help and
// version. Returns the exit code. Throws Error.
int run_command_line(const std::vector<std::string>& arguments, const Environment& environment,
                     const std::vector<Verb>& verbs);

// Calls run_command_line() and returns its exit code. If it throws, calls report_failure(), which usually prints the
// exception as "error: …" on standard error, and returns the exit code of the exception.
int guarded_run(const std::vector<std::string>& arguments, const Environment& environment,
                const std::vector<Verb>& verbs);

}  // namespace tessera
