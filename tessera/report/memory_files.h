// The files of --memory-log in a run's folder.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "tessera/report/run_folder.h"

namespace tessera {

// Reads a run's memory logs, gpu_memory_log*.csv and cpu_memory_log*.txt, in `folders`. If the run was started several
// times, for example to resume it, reads only the logs of its last start. Skips folders that do not exist. If an
// existing folder or a log cannot be read, calls `report` with its path and the reason.
std::vector<MemorySeries> read_memory_logs(
    const std::vector<std::filesystem::path>& folders,
    const std::function<void(const std::filesystem::path&, const std::string&)>& report);

}  // namespace tessera
