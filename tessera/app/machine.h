// Facts about the machine that the process runs on, for `tessera doctor`. Nothing here throws on an unusual machine: a
// fact that is not available is left out, or is "not found" or "unknown".
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "tessera/base/process.h"

namespace tessera {

// Each function returns an object of facts. Keys that end in `_bytes` hold numbers of bytes.
nlohmann::ordered_json build_facts();                          // version, compiler, instruction set, back ends
nlohmann::ordered_json cpu_facts();                            // model, cores, SIMD
nlohmann::ordered_json memory_facts();                         // total, available, the control group's limit
nlohmann::ordered_json disk_facts(const std::string& folder);  // space where `folder` is or would be created
nlohmann::ordered_json library_facts();                        // BLAS and its threads, Oniguruma, …
nlohmann::ordered_json accelerator_facts();                    // driver, GPUs, NCCL, cuBLASLt
nlohmann::ordered_json mpi_facts(const Environment& environment);
nlohmann::ordered_json environment_facts(const Environment& environment);  // relevant variables; secrets as "(set)"

}  // namespace tessera
