// The values about GPUs in summary.json, metrics.jsonl and the table at the end of a run.
#pragma once

#include <string>
#include <vector>

#include "tessera/base/record.h"
#include "tessera/device/nvml/gpu_sampler.h"

namespace tessera {

// Returns {"memory_bytes": {"mean": …, "peak": …}, "process_memory_bytes": …, "utilization_percent": …,
// "power_w": …, "sm_clock_mhz": …}. Every key has a mean and a peak. Keys without a sample are missing.
Record gpu_record(const GpuUsage& usage);

// Combines the results of gpu_record() of all ranks: each mean and each peak is the maximum over the ranks.
Record highest_of(const std::vector<Record>& gpu_records);

// Returns, for example, "peak 14.2 GiB, 13.6 GiB by this program; on average 93 % busy, 612 W, 1755 MHz".
std::string gpu_line(const Record& gpu);

}  // namespace tessera
