// Settings whose values have a grammar: amounts of bytes, and offload.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tessera/engine/shard_plan.h"

namespace tessera {

// ASCII letters in lower case.
std::string lower(std::string_view text);

// Reads "32GiB", "25 MB", "1.5KiB", "500000000", "5e8". Units: B; kB, MB, GB, TB (powers of 1000); KiB, MiB, GiB, TiB
// (powers of 1024). Upper and lower case are equal. Throws UsageError with `where` if the text has another form, or if
// the amount is negative, too large, or not a whole number of bytes.
int64_t parse_bytes(std::string_view text, const std::string& where);
// The same amount with the largest unit that divides it: "25MiB", "500MB", "1001".
std::string bytes_text(int64_t bytes);

// Reads "none", or a comma-separated list of "optimizer", "gradients" and "parameters". Each may end with ":host" (the
// default; also ":cpu") or ":file" (also ":nvme"). Throws UsageError with `where`.
Offload parse_offload(std::string_view text, const std::string& where);
// The canonical text: "none", "optimizer:file,parameters:host".
std::string offload_text(const Offload& offload);

// The trackers of a run.
struct TrackerChoice {
  bool tensorboard = false, wandb = false;
};
// Reads "none", or a comma-separated list of "tensorboard" and "wandb"; "all" means both. Throws UsageError with
// `where`.
TrackerChoice parse_trackers(std::string_view text, const std::string& where);
// The canonical text: "none", "tensorboard,wandb".
std::string tracker_text(const TrackerChoice& choice);

}  // namespace tessera
