#include "tessera/store/process.h"

#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <fstream>
#include <sstream>

namespace tessera {

namespace {

std::string this_host() {
  char name[256] = {};
  if (gethostname(name, sizeof name - 1) != 0 || name[0] == '\0') return "localhost";
  return name;
}

// Field 22 of /proc/<pid>/stat (proc(5)); nullopt: no such process.
std::optional<unsigned long long> start_time_of(long pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  const size_t name_end = line.rfind(')');  // the second field may itself contain blanks and parentheses
  if (name_end == line.npos) return std::nullopt;
  std::istringstream fields(line.substr(name_end + 1));
  std::string field;
  for (int i = 3; i <= 22 && fields >> field; ++i) {
    if (i == 3 && (field == "Z" || field == "X")) return std::nullopt;  // dead, not yet waited for
  }
  unsigned long long ticks = 0;
  const auto end = field.data() + field.size();
  if (std::from_chars(field.data(), end, ticks).ptr != end) return std::nullopt;
  return ticks;
}

template <typename Number>
bool parse_number(std::string_view text, Number& value) {
  const auto end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && stop == end;
}

}  // namespace

ProcessIdentity ProcessIdentity::self() {
  const long pid = getpid();
  return {this_host(), pid, start_time_of(pid).value_or(0)};
}

std::string ProcessIdentity::to_string() const {
  return fmt::format("{}-{}-{}", host, pid, start_time);
}

std::optional<ProcessIdentity> ProcessIdentity::parse(std::string_view text) {
  const size_t second = text.rfind('-');
  if (second == text.npos || second == 0) return std::nullopt;
  const size_t first = text.rfind('-', second - 1);
  if (first == text.npos || first == 0) return std::nullopt;
  ProcessIdentity identity{std::string(text.substr(0, first))};
  if (!parse_number(text.substr(first + 1, second - first - 1), identity.pid) || identity.pid <= 0) return std::nullopt;
  if (!parse_number(text.substr(second + 1), identity.start_time)) return std::nullopt;
  return identity;
}

bool ProcessIdentity::is_on_this_host() const {
  return host == this_host();
}
bool ProcessIdentity::is_alive_here() const {
  return is_on_this_host() && start_time_of(pid) == start_time;
}

}  // namespace tessera
