// Time limits in the formats of Slurm's sbatch.
#pragma once

#include <cstdint>
#include <string>

namespace tessera {

// Reads "minutes", "minutes:seconds", "hours:minutes:seconds", "days-hours", "days-hours:minutes" or
// "days-hours:minutes:seconds". Returns seconds. If the text has another form or the time is zero, throws UsageError
// with `where` as its place.
int64_t parse_slurm_time(const std::string& text, const std::string& where);
// Returns the text of a time limit, such as "04:00:00" or "1-12:00:00".
std::string slurm_time_text(int64_t seconds);

}  // namespace tessera
