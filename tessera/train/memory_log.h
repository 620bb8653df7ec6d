// --memory-log: a separate thread samples memory, CPU use and GPU utilization, from the start of a rank to the end of
// the run.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "tessera/base/periodic_thread.h"
#include "tessera/log/console.h"
#include "tessera/session/worker.h"
#include "tessera/settings/settings.h"
#include "tessera/train/memory_log_files.h"

namespace tessera {

class MemoryLog {
 public:
  // Creates the files and takes the first sample. Throws RunError if a file cannot be created. If a file cannot be
  // written later, the log calls `warn`, possibly on its own thread, and takes no more samples. `now_s` returns the
  // seconds of a monotonic clock.
  MemoryLog(const MemoryLogNames& names, MemorySources sources, double interval_s,
            std::function<void(const std::string&)> warn, std::function<double()> now_s);

  // Sets the step that later samples record. May be called at any time, but only by one thread. Costs almost nothing.
  void note_step(int64_t step) { step_.store(step, std::memory_order_relaxed); }

  // Takes a last sample, ends the log and returns the result of MemoryLogFiles::statistics().
  Record finish();

 private:
  void sample();

  MemoryLogFiles files_;
  const std::function<void(const std::string&)> warn_;
  const std::function<double()> now_s_;
  const double begin_s_;
  std::atomic<int64_t> step_{0};
  bool failed_ = false;
  std::optional<PeriodicThread> thread_;
};

// Starts the log that the settings request. Returns null if they request none. Throws RunError if the folder is not
// writable. Collective: all ranks must call it.
std::unique_ptr<MemoryLog> start_memory_log(const Settings& settings, const Worker& worker, Console& console);

}  // namespace tessera
