#include <csignal>
#include <string>
#include <vector>

#include "tessera/app/command_line.h"

extern char** environ;

int main(int argc, char** argv) {
  std::signal(SIGXFSZ, SIG_IGN);  // a limit on file sizes is met as an error of the write, with its message
  tessera::Environment environment;
  for (char** entry = environ; *entry; ++entry) {
    const std::string text = *entry;
    const size_t equals = text.find('=');
    if (equals != std::string::npos) environment.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  const std::vector<std::string> arguments(argv + (argc > 0 ? 1 : 0), argv + argc);
  return tessera::guarded_run(arguments, environment, tessera::all_verbs());
}
