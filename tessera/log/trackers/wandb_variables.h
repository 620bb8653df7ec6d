// The WANDB_* variables that Tessera understands. WANDB_API_KEY is never read.
#pragma once

#include <string>
#include <vector>

#include "tessera/base/process.h"

namespace tessera {

struct WandbVariables {
  bool is_disabled = false;  // WANDB_MODE=disabled, or WANDB_DISABLED is true, 1, yes or on
  // WANDB_MODE is online, run or shared. Tessera still writes an offline run, which the user uploads with `wandb sync`.
  bool asks_online = false;
  std::string project = "huggingface", entity, name, run_id, group, job_type, notes, dir;
  std::vector<std::string> tags;
};

// Reads the variables. Throws UsageError for an unknown WANDB_MODE or an invalid WANDB_RUN_ID.
WandbVariables wandb_variables(const Environment& environment);

}  // namespace tessera
