// Time limits in the formats of Slurm's sbatch.
#pragma once

#include <cstdint>
#include <string>

namespace tessera {

// Reads "minutes", "minutes:seconds", "hours:minutes:seconds", "days-hours", "days-hours:minutes" or
// "days-hours:minutes:seconds". Returns seconds. Throws UsageError, with `where` as the place of the error, if the
// text has another form, if one of its numbers is greater than 1,000,000, or if the time is zero.
int64_t parse_slurm_time(const std::string& text, const std::string& where);
// Returns the text of a time limit, such as "04:00:00" or "1-12:00:00".
std::string slurm_time_text(int64_t seconds);

}  // namespace tessera
