// The training command of a Slurm job, and the resources that it needs.
#pragma once

#include <string>
#include <vector>

#include "tessera/app/command_line.h"

namespace tessera {

// A training command in a job.
struct JobCommand {
  ParsedFlags flags;  // including values of TESSERA_* variables: the job does not depend on the shell that submits it
  ResolvedSettings resolved;  // checked
  Settings slurm;             // the resources: resources_of_job()
};

// Returns `slurm` with values from the table [slurm] of the recipe, for settings that neither flags nor variables give.
// Returns `slurm` unchanged if `recipe` is empty.
ResolvedSettings with_recipes_table(ResolvedSettings slurm, const std::string& recipe);

// Parses "train run.toml --lr 1e-4", or the same without the verb. `slurm`: the settings of the job without the
// recipe's table, with their origins. Throws UsageError, also if the run would fail in the job or would start from the
// beginning each time the job is queued again.
JobCommand parse_job_command(std::vector<std::string> words, const ResolvedSettings& slurm,
                             const Environment& environment);

// The resources of a job for a run. If the run gives a number of ranks (`nproc`) and the job gives no --nodes, computes
// the number of nodes from the number of ranks on a node. This number is --ntasks-per-node, if this flag is given.
// Otherwise it is `ranks_per_node` (a setting of the run), or `nproc` if `ranks_per_node` is not set; but at most
// --gpus-per-node, if that flag is given. Throws UsageError if run and job contradict each other.
Settings resources_of_job(const ResolvedSettings& slurm, const ResolvedSettings& run);

// The words of the command for the job file. Adds --memory-log, and --preflight for several ranks, if the run does not
// set them.
std::vector<std::string> words_of_job(const JobCommand& command);

}  // namespace tessera
