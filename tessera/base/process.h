// What the system reports about a process of this machine.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace tessera {

struct ProcessState {
  char letter = '?';        // as in proc(5): 'T' and 't' mean stopped; '?' if not reported
  uint64_t start_time = 0;  // in clock ticks since boot; distinguishes it from a later process with the same id
};

// Nothing if the process does not exist, if it is ending, or if it is dead and nobody has waited for it.
std::optional<ProcessState> state_of_process(int pid);

// The variables of this process, by name.
using Environment = std::map<std::string, std::string>;
Environment environment_of_process();

// The path of a program that PATH finds.
std::optional<std::string> program_in_path(const Environment& environment, const std::string& name);

}  // namespace tessera
