// Makes help texts from the declarations of verbs and settings. The texts fit 80 columns and do not end with a newline.
#pragma once

#include <string>
#include <vector>

#include "tessera/app/verbs.h"

namespace tessera {

// Returns, for example, "tessera 0.2.0 (GCC 12.2.0)".
std::string version_text();
// Help for the program: its purpose, its verbs, one example, and the exit codes.
std::string program_help(const std::vector<Verb>& verbs);
// Help for the verbs whose first word is `word`, for example "tokenizer".
std::string family_help(const std::string& word, const std::vector<Verb>& verbs);
// Help for a verb: the settings that users need first, and one example. `groups`: the settings that the verb takes.
// `subject` is `verb` itself. Exception: if a command names another verb after `config`, `subject` is that other verb.
std::string brief_help(const Verb& verb, const Verb& subject, Groups groups);
// Help for a verb with all settings of `groups`, by group. The arguments are the same as for brief_help().
std::string full_help(const Verb& verb, const Verb& subject, Groups groups);

// What the program does, in two sentences, and where the value of a setting comes from.
std::string program_purpose();
std::string precedence_help();

// An exit code of the program.
struct ExitCodeHelp {
  std::string code;  // a number, or "128+n"
  std::string meaning;
};
std::vector<ExitCodeHelp> exit_code_help();

// Joins words: "a", "a and b", "a, b and c". `last_word` comes before the last element, instead of "and".
std::string enumerated(const std::vector<std::string>& words, const std::string& last_word = "and");

}  // namespace tessera
