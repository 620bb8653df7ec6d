#include "tessera/comm/meeting_point.h"

#include <fmt/format.h>

#include <charconv>
#include <string_view>

#include "tessera/base/error.h"
#include "tessera/base/option_names.h"

namespace tessera {
namespace {

std::string value_of(const Environment& environment, const char* name) {
  const auto it = environment.find(name);
  return it == environment.end() ? "" : it->second;
}

std::string remedy_of_start() {
  return fmt::format(
      "Set MASTER_ADDR to the address of rank 0 and MASTER_PORT to a free port, the same on all ranks. On "
      "one machine, use `{} N` instead",
      option("nproc"));
}

int port_of(const Environment& environment, int num_ports) {
  const std::string text = value_of(environment, "MASTER_PORT");
  int port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  const bool is_number = error == std::errc() && end == text.data() + text.size();
  if (!is_number || port < 1 || port + num_ports - 1 > 65535) {
    throw UsageError("MASTER_PORT",
                     fmt::format("must be a port from 1 to {}, got \"{}\"", 65536 - num_ports, printable(text)),
                     remedy_of_start());
  }
  return port;
}

// Does not contain MASTER_ADDR: some starters give rank 0 the name "localhost", and the other ranks the name of its
// machine.
std::string token_of(const Environment& environment, const MeetingPoint& meeting) {
  std::string token = std::to_string(meeting.first_port);
  for (const char* name : {"TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "SLURM_JOB_ID", "SLURM_STEP_ID"}) {
    token += ":" + value_of(environment, name);
  }
  return token;
}

// The name "localhost" does not say that all ranks are on this machine (see token_of()), but a loopback address does.
bool all_are_local(const Environment& environment, const std::string& host, int size) {
  return host == "::1" || host.starts_with("127.") || value_of(environment, "LOCAL_WORLD_SIZE") == std::to_string(size);
}

}  // namespace

MeetingPoint meeting_of_torchrun(const Environment& environment, int rank, int size) {
  for (const char* name : {"MASTER_ADDR", "MASTER_PORT"}) {
    if (!value_of(environment, name).empty()) continue;
    throw UsageError(name,
                     fmt::format("is not set, but RANK={} and WORLD_SIZE={} say that this process is one of {} ranks",
                                 rank, size, size),
                     remedy_of_start() + ". If RANK and WORLD_SIZE were left over, unset them");
  }
  const std::string uses_store = value_of(environment, "TORCHELASTIC_USE_AGENT_STORE");
  const bool is_taken = uses_store == "True" || uses_store == "true" || uses_store == "1";
  MeetingPoint meeting{.host = value_of(environment, "MASTER_ADDR")};
  meeting.num_ports = is_taken ? kPortsAfterStore : 1;
  meeting.first_port = port_of(environment, is_taken ? kPortsAfterStore + 1 : 1) + (is_taken ? 1 : 0);
  meeting.is_local = all_are_local(environment, meeting.host, size);
  meeting.token = token_of(environment, meeting);
  meeting.place = "MASTER_ADDR";
  return meeting;
}

std::string first_host(const std::string& list) {
  std::string host;
  for (size_t i = 0; i < list.size() && list[i] != ','; ++i) {
    if (list[i] != '[') {
      host += list[i];
      continue;
    }
    const size_t end = list.find_first_of(",-]", i + 1), close = list.find(']', i);
    if (close == std::string::npos || end == i + 1) return "";
    host += list.substr(i + 1, end - i - 1);
    i = close;
  }
  return host;
}

MeetingPoint meeting_of_srun(const Environment& environment, int rank, int size) {
  if (!value_of(environment, "MASTER_ADDR").empty() && !value_of(environment, "MASTER_PORT").empty()) {
    return meeting_of_torchrun(environment, rank, size);
  }
  std::string place = "SLURM_STEP_NODELIST", list = value_of(environment, place.c_str());
  if (list.empty()) place = "SLURM_JOB_NODELIST", list = value_of(environment, place.c_str());
  MeetingPoint meeting{.host = first_host(list), .place = place};
  if (meeting.host.empty()) {
    meeting.host = value_of(environment, "SLURM_LAUNCH_NODE_IPADDR");
    meeting.place = "SLURM_LAUNCH_NODE_IPADDR";
  }
  if (meeting.host.empty()) {
    throw UsageError("SLURM_STEP_NODELIST",
                     fmt::format("is \"{}\", so this process cannot find rank 0 (it is rank {} of {} of srun)",
                                 printable(list), rank, size),
                     "Set MASTER_ADDR to the address of rank 0 and MASTER_PORT to a free port");
  }
  // Jobs on one node at the same time have different numbers, so they usually get different ports. The ports are below
  // those that the system gives to outgoing connections.
  uint32_t hash = 2166136261u;
  for (const char c : value_of(environment, "SLURM_JOB_ID") + "." + value_of(environment, "SLURM_STEP_ID")) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
  }
  meeting.first_port = 20000 + static_cast<int>(hash % 1250) * kPortsAfterStore;
  meeting.num_ports = kPortsAfterStore;
  meeting.is_local = value_of(environment, "SLURM_STEP_NUM_NODES") == "1";
  meeting.token = token_of(environment, meeting);
  return meeting;
}

}  // namespace tessera
