// Who wrote a lock or a temporary file, and whether that process still lives.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tessera {

// A process, told apart from a later one that got the same number by its start time.
struct ProcessIdentity {
  std::string host;
  int pid = 0;
  uint64_t start_time = 0;  // clock ticks since the machine started

  static ProcessIdentity self();
  // "<host>-<pid>-<start time>", and back; nullopt for any other text.
  std::string to_string() const;
  static std::optional<ProcessIdentity> parse(std::string_view text);

  bool is_on_this_host() const;
  // False on another host, where nobody can tell from here.
  bool is_alive_here() const;
  bool operator==(const ProcessIdentity&) const = default;
};

}  // namespace tessera
