// Help texts, made from the declarations of verbs and settings.
#pragma once

#include <string>
#include <vector>

#include "tessera/app/verbs.h"

namespace tessera {

// "tessera 0.2.0 (GCC 12.2.0, x86-64)"
std::string version_text();
// The texts below have no newline at their end.
// The program: usage and the verbs.
std::string program_help(const std::vector<Verb>& verbs);
// A verb: usage and its settings by group.
std::string verb_help(const Verb& verb, Groups groups);

}  // namespace tessera
