// The training command of a Slurm job, and the resources that it needs.
#pragma once

#include <string>
#include <vector>

#include "tessera/app/command_line.h"

namespace tessera {

// A training command in a job.
struct JobCommand {
  ParsedFlags flags;  // with the values of TESSERA_* variables: a job does not depend on the shell that submits it
  ResolvedSettings resolved;  // checked
  Settings slurm;             // nodes and ranks on a node fit the run
};

// `slurm` with the table [slurm] of a recipe, where flags and variables leave a setting open. An empty name: no recipe.
ResolvedSettings with_recipes_table(ResolvedSettings slurm, const std::string& recipe);

// Parses "train run.toml --lr 1e-4", or the same without the verb. `slurm`: the settings of the job without the
// recipe's table, with their origins. Throws UsageError: also for settings of the run that would fail in the job, or
// never end.
JobCommand parse_job_command(std::vector<std::string> words, const ResolvedSettings& slurm,
                             const Environment& environment);

// The resources of a job for a run. If the run has a number of ranks (`nproc`) and the job does not set the nodes, the
// nodes follow: a node has the run's `ranks_per_node`, at most --gpus-per-node. Throws UsageError if they contradict.
Settings resources_of_job(const ResolvedSettings& slurm, const ResolvedSettings& run);

// The words of the command for the job file, with what every job gets: a memory log, and a preflight of several ranks.
std::vector<std::string> words_of_job(const JobCommand& command);

}  // namespace tessera
