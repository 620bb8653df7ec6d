// Time limits in the formats of Slurm's sbatch.
#pragma once

#include <cstdint>
#include <string>

namespace tessera {

// Reads "minutes", "minutes:seconds", "hours:minutes:seconds", "days-hours", "days-hours:minutes" or
// "days-hours:minutes:seconds". Returns seconds. Throws UsageError with the place `where`, also for zero.
int64_t parse_slurm_time(const std::string& text, const std::string& where);
// The canonical text: "04:00:00", "1-12:00:00".
std::string slurm_time_text(int64_t seconds);

}  // namespace tessera
