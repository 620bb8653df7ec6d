#include "tessera/base/process_tree.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>

namespace tessera {

namespace fs = std::filesystem;

namespace {

// The fields of /proc/PID/stat after the name, from field 3 on. Empty if the process does not exist.
std::istringstream fields_of(const fs::path& proc, int pid) {
  std::ifstream file(proc / std::to_string(pid) / "stat");
  std::string line;
  std::getline(file, line);
  const size_t name_end = line.rfind(')');  // the name, field 2, may contain blanks and parentheses
  return std::istringstream(name_end == line.npos ? "" : line.substr(name_end + 1));
}

// Virtual and resident memory in bytes.
std::pair<int64_t, int64_t> memory_of(const fs::path& proc, int pid) {
  std::ifstream file(proc / std::to_string(pid) / "statm");
  int64_t virtual_pages = 0, resident_pages = 0;
  if (!(file >> virtual_pages >> resident_pages)) return {0, 0};
  static const int64_t page_bytes = sysconf(_SC_PAGESIZE);
  return {virtual_pages * page_bytes, resident_pages * page_bytes};
}

}  // namespace

int64_t resident_bytes(int pid, const fs::path& proc) {
  return memory_of(proc, pid).second;
}

ProcessTree::ProcessTree(std::vector<int> roots, fs::path proc) : proc_(std::move(proc)) {
  for (const int pid : roots) known_[pid];
}

std::optional<ProcessTree::Times> ProcessTree::times_of(int pid) const {
  std::istringstream fields = fields_of(proc_, pid);
  std::string skipped, state;
  fields >> state;
  if (state.empty() || state == "Z" || state == "X") return std::nullopt;
  for (int field = 4; field < 14; ++field) fields >> skipped;
  uint64_t user = 0, system = 0, start = 0;
  fields >> user >> system;
  for (int field = 16; field < 22; ++field) fields >> skipped;
  if (!(fields >> start)) return std::nullopt;
  return Times{.start = start, .used = user + system};
}

void ProcessTree::find_children() {
  std::vector<int> open;
  for (const auto& [pid, times] : known_) open.push_back(pid);
  while (!open.empty()) {
    const int pid = open.back();
    open.pop_back();
    std::error_code error;
    fs::directory_iterator threads(proc_ / std::to_string(pid) / "task", error);
    for (; !error && threads != fs::directory_iterator(); threads.increment(error)) {
      std::ifstream children(threads->path() / "children");
      for (int child = 0; children >> child;) {
        if (known_.try_emplace(child).second) open.push_back(child);
      }
    }
  }
}

ProcessTree::Sample ProcessTree::sample(double now_s) {
  static const auto ticks_per_s = static_cast<double>(sysconf(_SC_CLK_TCK));
  find_children();
  Sample sum;
  for (auto it = known_.begin(); it != known_.end();) {
    std::optional<Times> now = times_of(it->first);
    std::optional<Times>& before = it->second;
    if (!now || (before && before->start != now->start)) {  // this process has ended; a new one may have its id
      it = known_.erase(it);
      continue;
    }
    now->at_s = now_s;
    if (before && now_s > before->at_s) {
      const double used_s = static_cast<double>(now->used - before->used) / ticks_per_s;
      sum.cpu_percent += std::round(1000 * used_s / (now_s - before->at_s)) / 10;  // rounded per process, as in psutil
    }
    const auto [virtual_bytes, resident] = memory_of(proc_, it->first);
    sum.virtual_bytes += virtual_bytes;
    sum.resident_bytes += resident;
    ++sum.num_processes;
    before = now;
    ++it;
  }
  return sum;
}

int ancestor_with_same_program() {
  const auto program_of = [](int pid) {
    std::error_code error;
    return fs::read_symlink(fmt::format("/proc/{}/exe", pid), error).string();
  };
  const std::string mine = program_of(getpid());
  constexpr int kMostAncestors = 64;
  int pid = getppid();
  for (int i = 0; i < kMostAncestors && pid > 1; ++i) {
    if (!mine.empty() && program_of(pid) == mine) return pid;
    std::istringstream fields = fields_of("/proc", pid);
    std::string state;
    int parent = 0;
    fields >> state >> parent;
    pid = parent;
  }
  return 0;
}

}  // namespace tessera
