// The files of --memory-log that one rank writes, sample by sample. docs/memory-logs.md describes them.
#pragma once

#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/base/process_tree.h"
#include "tessera/device/ledger.h"
#include "tessera/device/nvml/nvml.h"
#include "tessera/log/memory_statistics.h"
#include "tessera/log/output_file.h"

namespace tessera {

struct LoggedGpu {
  Nvml::Gpu gpu = nullptr;
  GpuIdentity identity{};
};

// What a rank samples. Only the first rank of a node samples the node's GPUs and processes.
struct MemorySources {
  const Ledger* device = nullptr;
  const Ledger* host = nullptr;
  std::shared_ptr<const Nvml> nvml{};  // null: no GPUs
  std::optional<Nvml::Gpu> own_gpu{};
  std::vector<LoggedGpu> node_gpus{};
  std::optional<ProcessTree> tree{};
};

struct MemoryLogNames {
  std::filesystem::path folder;
  int rank = 0;
  std::string host{};            // the host name of this node, also for summary.json
  bool has_other_nodes = false;  // the run has several nodes: the names of GPU and process logs then contain the host
};

class MemoryLogFiles {
 public:
  // Creates the files. If an earlier start of the run left files with these names, first adds a number to the names of
  // the old files: cpu_memory_log.txt becomes cpu_memory_log.1.txt. Throws RunError.
  MemoryLogFiles(const MemoryLogNames& names, MemorySources sources);

  // Appends one sample to each file. `elapsed_s`: seconds since the start of the log, from a monotonic clock. Throws
  // RunError.
  void sample(double elapsed_s, std::chrono::system_clock::time_point time, int64_t step);

  // {"gpu": [{"host", "index", "peak_mib", "average_mib", "mode_mib"}], "cpu": {"peak_mb", "average_mb", "mode_mb"}}.
  // All values are in units of 2^20 bytes. Parts that this rank does not sample are missing.
  Record statistics() const;

 private:
  void sample_gpus(std::chrono::system_clock::time_point time);
  void sample_processes(double elapsed_s);
  void sample_ledgers(std::chrono::system_clock::time_point time, int64_t step);

  MemorySources sources_;
  const std::string host_;
  std::optional<OutputFile> gpu_, cpu_, ledger_;
  std::map<unsigned, MemoryStatistics> gpu_mib_;  // key: the index of the GPU on its node
  MemoryStatistics real_mb_;
};

// Combines the statistics() of all ranks. "gpu" has the GPUs of all nodes. "cpu" has the values of one node: the node
// whose processes had the highest peak. The record is empty if nothing was sampled.
Record combined_memory_statistics(const std::vector<Record>& ranks);

}  // namespace tessera
