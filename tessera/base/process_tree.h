// Memory and processor time of processes and their descendants, from /proc. psutil and psrecord define these values in
// the same way.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <vector>

namespace tessera {

// The resident memory of a process in bytes; 0: unknown.
int64_t resident_bytes(int pid, const std::filesystem::path& proc = "/proc");

class ProcessTree {
 public:
  // Sums over `roots` and all their descendants. Memory that several processes share counts for each of them.
  struct Sample {
    // Processor time since the previous sample; 100 is one busy core. Covers only processes that were already in the
    // previous sample.
    double cpu_percent = 0;
    int64_t resident_bytes = 0, virtual_bytes = 0;
    int num_processes = 0;
  };

  explicit ProcessTree(std::vector<int> roots, std::filesystem::path proc = "/proc");

  // Takes a sample. `now_s`: the current time of a monotonic clock. A descendant that an earlier sample found still
  // counts after its parent has ended.
  Sample sample(double now_s);

 private:
  struct Times {
    uint64_t start = 0;  // clock ticks since boot; a later process with the same id has another value
    uint64_t used = 0;   // clock ticks of processor time
    double at_s = 0;     // `now_s` of the sample
  };
  std::optional<Times> times_of(int pid) const;
  void find_children();

  const std::filesystem::path proc_;
  std::map<int, std::optional<Times>> known_;  // nullopt: not sampled yet
};

// The id of the nearest ancestor of this process that runs the same program. 0 if there is none.
int ancestor_with_same_program();

}  // namespace tessera
