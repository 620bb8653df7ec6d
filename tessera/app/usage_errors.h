// Errors of the command line: what is wrong, and what to write instead.
#pragma once

#include <string>
#include <vector>

#include "tessera/app/verbs.h"

namespace tessera {

// Returns whether `word` is the first word of a two-word verb: "tokenizer" of "tokenizer train".
bool begins_a_verb(const std::string& word, const std::vector<Verb>& verbs);

// Throws the UsageError for `words` that do not begin with a verb. `words` must not be empty.
[[noreturn]] void unknown_verb(const std::vector<std::string>& words, const std::vector<Verb>& verbs);

// Throws the UsageError for a `flag` that `verb` does not accept. `verb` accepts the settings of `groups` as flags.
[[noreturn]] void unknown_flag(const std::string& flag, const Verb& verb, Groups groups,
                               const std::vector<Verb>& verbs);

// `word` is one of `words`, the arguments of a verb. It is neither a flag, nor the value of a flag, nor a
// configuration file. Returns what to write instead, or an empty text if no correction is known.
std::string remedy_for_word(const std::string& word, const std::vector<std::string>& words, Groups groups,
                            const std::vector<Verb>& verbs);

// Throws UsageError if `path`, the value of `setting`, exists and is not a regular file.
void check_target(const ResolvedSettings& resolved, const std::string& setting, const std::string& path);

// Throws UsageError if settings that the verb requires are missing. The error names all missing settings.
void check_required(const Verb& verb, const ResolvedSettings& resolved);

}  // namespace tessera
