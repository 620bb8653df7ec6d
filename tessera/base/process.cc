#include "tessera/base/process.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>
#include <filesystem>

#include <cerrno>
#include <fstream>
#include <sstream>
#include <string>

namespace tessera {

// Linux's flag PF_EXITING: the process is ending. Linux sets the flag before it frees the memory of the process, and
// before the process is a zombie.
constexpr uint64_t kExiting = 0x4;

std::optional<ProcessState> state_of_process(int pid) {
  if (kill(pid, 0) != 0 && errno == ESRCH) return std::nullopt;
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string line;
  std::getline(file, line);
  ProcessState state;
  const size_t name_end = line.rfind(')');  // the name, field 2, may contain blanks and parentheses
  if (name_end == line.npos) return state;
  std::istringstream fields(line.substr(name_end + 1));
  fields >> state.letter;
  if (state.letter == 'Z' || state.letter == 'X') return std::nullopt;
  std::string skipped;
  uint64_t flags = 0;
  for (int field = 4; field < 9; ++field) fields >> skipped;
  fields >> flags;
  if (flags & kExiting) return std::nullopt;
  for (int field = 10; field < 22; ++field) fields >> skipped;
  fields >> state.start_time;
  return state;
}

Environment environment_of_process() {
  Environment environment;
  for (char** entry = environ; *entry; ++entry) {
    const std::string text = *entry;
    const size_t equals = text.find('=');
    if (equals != std::string::npos) environment.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return environment;
}

std::optional<std::string> program_in_path(const Environment& environment, const std::string& name) {
  const auto it = environment.find("PATH");
  std::istringstream folders(it == environment.end() ? "" : it->second);
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string path = (folder.empty() ? "." : folder) + "/" + name;
    if (access(path.c_str(), X_OK) == 0 && !std::filesystem::is_directory(path)) return path;
  }
  return std::nullopt;
}

std::string own_program() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error).string();
}

}  // namespace tessera
