// Command lines as text for a shell.
#pragma once

#include <string>
#include <vector>

namespace tessera {

// The argument as one word of a POSIX shell: unchanged if it has only plain characters, otherwise in single quotes.
std::string quoted_for_shell(const std::string& argument);
// The arguments, quoted and separated by blanks.
std::string command_for_shell(const std::vector<std::string>& arguments);

}  // namespace tessera
