// What the completions of shells and the manual page need to know about verbs and settings. All of it comes from the
// table of verbs and the declarations of settings.
#pragma once

#include <string>
#include <vector>

#include "tessera/app/verbs.h"

namespace tessera {

// A flag with one meaning, and the verbs where it has this meaning.
struct CompletionFlag {
  std::string flag;                // "--lr"; of a boolean also "--no-shuffle"
  std::string help;                // one line without a full stop
  std::vector<std::string> verbs;  // names; a verb that starts runs also has the flags of these runs
  bool takes_value = false;
  bool takes_files = false;          // the value is a path
  bool takes_many = false;           // several values
  bool may_be_bare = false;          // the value may be missing
  std::vector<std::string> words{};  // the words that the value may be
};

// All flags of all verbs, in the order of the declarations.
std::vector<CompletionFlag> completion_flags(const std::vector<Verb>& verbs);

// The words that may follow a verb, from Verb::operands: bash, zsh and fish for "bash|zsh|fish". Empty if paths follow.
std::vector<std::string> operand_words(const Verb& verb);

// The shells that have completions, sorted.
std::vector<std::string> completed_shells();
// The script that completes the commands of tessera in a shell of completed_shells().
std::string completion_script(const std::string& shell, const std::vector<Verb>& verbs);
// The manual page, for groff's macros man.
std::string manual_page(const std::vector<Verb>& verbs);

}  // namespace tessera
