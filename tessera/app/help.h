// Help texts, made from the declarations of verbs and settings. They fit 80 columns and have no newline at the end.
#pragma once

#include <string>
#include <vector>

#include "tessera/app/verbs.h"

namespace tessera {

// "tessera 0.2.0 (GCC 12.2.0)"
std::string version_text();
// The program: what it is, the verbs, one example.
std::string program_help(const std::vector<Verb>& verbs);
// The verbs whose first word is `word`.
std::string family_help(const std::string& word, const std::vector<Verb>& verbs);
// A verb: the settings that new users need, and one example. `subject`: the verb after `config`, otherwise `verb`.
std::string brief_help(const Verb& verb, const Verb& subject, Groups groups);
// A verb: all its settings by group.
std::string full_help(const Verb& verb, const Verb& subject, Groups groups);

// "a", "a and b", "a, b and c". `last_word`: the word before the last element.
std::string enumerated(const std::vector<std::string>& words, const std::string& last_word = "and");

}  // namespace tessera
