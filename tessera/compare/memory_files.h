// The files of --memory-log in a run's folder.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "tessera/compare/run_folder.h"

namespace tessera {

// gpu_memory_log*.csv and cpu_memory_log.txt in the folder `memory` of a run, or in the run's folder itself. `report`
// gets what cannot be read.
std::vector<MemorySeries> read_memory_folder(
    const std::filesystem::path& run,
    const std::function<void(const std::filesystem::path&, const std::string&)>& report);

}  // namespace tessera
