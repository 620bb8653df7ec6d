// The WANDB_* variables that Tessera understands. WANDB_API_KEY is never read.
#pragma once

#include <string>
#include <vector>

#include "tessera/base/process.h"

namespace tessera {

struct WandbVariables {
  bool is_disabled = false;  // WANDB_MODE=disabled or WANDB_DISABLED=true
  bool asks_online = false;  // WANDB_MODE=online: the run is offline nevertheless, and `wandb sync` uploads it
  std::string project = "huggingface", entity, name, run_id, group, job_type, notes, dir;
  std::vector<std::string> tags;
};

// Reads the variables. Throws UsageError for a value that W&B does not accept.
WandbVariables wandb_variables(const Environment& environment);

}  // namespace tessera
