// Facts about the machine a process runs on, for `tessera doctor`. Nothing here throws on an odd machine: what cannot
// be found out is left out.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "tessera/app/resolve.h"
#include "tessera/comm/mpi_flavour.h"

namespace tessera {

// Each is an object of facts; keys that end in `_bytes` are numbers of bytes.
nlohmann::ordered_json build_facts();                          // version, compiler, instruction set, back ends
nlohmann::ordered_json cpu_facts();                            // model, cores, SIMD
nlohmann::ordered_json memory_facts();                         // total, available, the control group's limit
nlohmann::ordered_json disk_facts(const std::string& folder);  // free space where `folder` is or would be
nlohmann::ordered_json library_facts();                        // BLAS and its threads, Oniguruma, …
nlohmann::ordered_json accelerator_facts();                    // driver, GPUs, NCCL, cuBLASLt
nlohmann::ordered_json mpi_facts(const Environment& environment);
MpiFlavour flavour_of_mpirun(const std::string& path);                     // by what it prints as its version
nlohmann::ordered_json environment_facts(const Environment& environment);  // the variables that matter, no secrets

// What a process may use by its control groups (cgroups of version 1 or 2), its own and those above it.
struct ControlGroupLimits {
  std::optional<int64_t> memory_bytes;
  std::optional<double> cores;
};
ControlGroupLimits control_group_limits(const std::filesystem::path& root = "/");

// The memory that a process may have: the machine's, or less by its control group's limit.
std::optional<int64_t> usable_memory_bytes();

// Whether a GPU (90 of compute capability 9.0) is older than all that a program built for `architectures` ("80
// 90-real") holds code for; false where these are not told in numbers.
bool has_no_code_for(int capability, const std::string& architectures);

// Where a program is found by PATH.
std::optional<std::string> program_in_path(const Environment& environment, const std::string& name);

// Threads to compute with: `setting`; where it is 0 what OMP_NUM_THREADS says, else all cores allowed, or fewer where a
// control group's quota is less than they are, divided among so many processes; 0 stands for what a ThreadPool takes.
int threads_to_use(int64_t setting, int num_processes = 1);

}  // namespace tessera
