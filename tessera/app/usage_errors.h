// Errors of the command line: what is wrong, and what to write instead.
#pragma once

#include <string>
#include <vector>

#include "tessera/app/verbs.h"

namespace tessera {

// Returns whether `word` is the first word of a two-word verb: "tokenizer" of "tokenizer train".
bool begins_a_verb(const std::string& word, const std::vector<Verb>& verbs);

// Throws UsageError: `words` do not begin with a verb.
[[noreturn]] void unknown_verb(const std::vector<std::string>& words, const std::vector<Verb>& verbs);

// Throws UsageError: `flag` is not a flag of `verb`. The settings of `groups` are the flags that `verb` has.
[[noreturn]] void unknown_flag(const std::string& flag, const Verb& verb, Groups groups,
                               const std::vector<Verb>& verbs);

// `word` is one of `words`, the arguments of a verb. It is neither a flag, nor the value of a flag, nor a
// configuration file. Returns what to write instead, or an empty text if no correction is known.
std::string remedy_for_word(const std::string& word, const std::vector<std::string>& words, Groups groups,
                            const std::vector<Verb>& verbs);

// `path` is the value of `setting`. It must be empty, a path that does not exist, or a regular file. Otherwise throws
// UsageError.
void check_target(const ResolvedSettings& resolved, const std::string& setting, const std::string& path);

// Throws UsageError if settings that the verb requires are missing. The error names all of them.
void check_required(const Verb& verb, const ResolvedSettings& resolved);

}  // namespace tessera
