// Identifies the process that wrote a lock or a temporary file, and finds out whether this process is still alive.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tessera {

// A process. The start time distinguishes it from a later process with the same pid.
struct ProcessIdentity {
  std::string host;
  int pid = 0;
  uint64_t start_time = 0;  // clock ticks since the machine booted

  static ProcessIdentity self();
  // Returns "<host>-<pid>-<start time>". parse() reads such a text, and returns nullopt for any other text.
  std::string to_string() const;
  static std::optional<ProcessIdentity> parse(std::string_view text);

  bool is_on_this_host() const;
  // Whether the process is alive. Always false for a process on another host, because this host cannot see it.
  bool is_alive_here() const;
  bool operator==(const ProcessIdentity&) const = default;
};

}  // namespace tessera
