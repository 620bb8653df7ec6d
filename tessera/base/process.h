// What the system tells of a process of this machine.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace tessera {

struct ProcessState {
  char letter = '?';        // of proc(5): 'T' and 't' are stopped; '?' where the system does not tell
  uint64_t start_time = 0;  // in clock ticks since the machine started, which tells it from a later one of its number
};

// Nothing where there is none, or none but a dead one that has not been waited for.
std::optional<ProcessState> state_of_process(int pid);

// The variables of this process, by name.
using Environment = std::map<std::string, std::string>;
Environment environment_of_process();

// The path of a program that PATH finds.
std::optional<std::string> program_in_path(const Environment& environment, const std::string& name);

}  // namespace tessera
