#include "tessera/store/process.h"

#include <fmt/format.h>
#include <unistd.h>

#include <charconv>

#include "tessera/base/process.h"

namespace tessera {

namespace {

std::string this_host() {
  char name[256] = {};
  if (gethostname(name, sizeof name - 1) != 0 || name[0] == '\0') return "localhost";
  return name;
}

template <typename Number>
bool parse_number(std::string_view text, Number& value) {
  const auto end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && stop == end;
}

}  // namespace

ProcessIdentity ProcessIdentity::self() {
  return {this_host(), getpid(), state_of_process(getpid())->start_time};
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
  if (!is_on_this_host()) return false;
  const auto process = state_of_process(pid);
  return process && process->start_time == start_time;
}

}  // namespace tessera
