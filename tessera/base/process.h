// The state of a process of this machine, environment variables and program of this process, and the search for a
// program.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace tessera {

struct ProcessState {
  char letter = '?';        // as in proc(5): 'T' and 't' mean stopped; '?' if not reported
  uint64_t start_time = 0;  // in clock ticks since boot; a later process with the same id has another value
};

// Returns nullopt if the process does not exist, is exiting, or is a zombie (its parent has not waited for it yet).
std::optional<ProcessState> state_of_process(int pid);

// Environment variables by name.
using Environment = std::map<std::string, std::string>;
Environment environment_of_process();  // of this process

// Searches the folders of the variable PATH in `environment`, in their order, for the program `name`. Returns the path
// of the first program found, or nullopt if no folder contains it.
std::optional<std::string> program_in_path(const Environment& environment, const std::string& name);

// The path of the program of this process. Empty if it is unknown, as without /proc.
std::string own_program();

}  // namespace tessera
