// The files of --memory-log in a run's folder.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "tessera/compare/run_folder.h"

namespace tessera {

// The last start's gpu_memory_log*.csv and cpu_memory_log*.txt in these folders, where they exist. `report` gets what
// cannot be read.
std::vector<MemorySeries> read_memory_logs(
    const std::vector<std::filesystem::path>& folders,
    const std::function<void(const std::filesystem::path&, const std::string&)>& report);

}  // namespace tessera
