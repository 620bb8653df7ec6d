// The files of --memory-log in a run's folder.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "tessera/compare/run_folder.h"

namespace tessera {

// Reads a run's memory logs from these folders: gpu_memory_log*.csv and cpu_memory_log*.txt. If the run was started
// several times, for example to resume it, reads only the logs of its last start. A folder may be missing. Calls
// `report` with the path and the reason for every folder and file that cannot be read.
std::vector<MemorySeries> read_memory_logs(
    const std::vector<std::filesystem::path>& folders,
    const std::function<void(const std::filesystem::path&, const std::string&)>& report);

}  // namespace tessera
