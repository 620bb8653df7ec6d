#include "tessera/base/shell.h"

#include <algorithm>
#include <cctype>
#include <string_view>

namespace tessera {

std::string quoted_for_shell(const std::string& argument) {
  constexpr std::string_view kPlain = "_-./:,=+@%";
  const auto is_plain = [&](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || kPlain.find(c) != std::string_view::npos;
  };
  if (!argument.empty() && std::ranges::all_of(argument, is_plain)) return argument;
  std::string quoted = "'";
  for (const char c : argument) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::string command_for_shell(const std::vector<std::string>& arguments) {
  std::string command;
  for (const auto& argument : arguments) command += (command.empty() ? "" : " ") + quoted_for_shell(argument);
  return command;
}

}  // namespace tessera
