// Parses the training command of a Slurm job, and computes the resources of the job.
#pragma once

#include <string>
#include <vector>

#include "tessera/app/command_line.h"

namespace tessera {

struct JobCommand {
  ParsedFlags flags;          // of the run. Includes values of TESSERA_* variables, which may not be set in the job
  ResolvedSettings resolved;  // of the run, checked
  Settings slurm;             // of the job: the result of resources_of_job()
};

// Returns a copy of `slurm`. Settings that are not given in `slurm` take their values from the table [slurm] of the
// file `recipe`, if this table contains them. If `recipe` is empty, the copy is unchanged.
ResolvedSettings with_recipes_table(ResolvedSettings slurm, const std::string& recipe);

// Parses the command of the run: "train run.toml --lr 1e-4", or the same without the verb. `slurm`: the settings of the
// job from flags and variables. Adds the recipe's table [slurm] to them. Throws UsageError if a setting is wrong, if
// the run would fail in the job, or if the run would start from the beginning each time the job is queued again.
JobCommand parse_job_command(std::vector<std::string> words, const ResolvedSettings& slurm,
                             const Environment& environment);

// The resources of a job for a run. If the run gives a number of ranks (`nproc`) and the job gives no --nodes, computes
// the number of nodes: `nproc` divided by the number of ranks per node. The number of ranks per node is the first of
// these values that is given: --ntasks-per-node of the job, `ranks_per_node` of the run, `nproc`. It is at most
// `nproc`. If --ntasks-per-node is not given, it is also at most --gpus-per-node, unless that is 0. Throws UsageError
// if run and job contradict each other, or if the ranks cannot be divided evenly among nodes.
Settings resources_of_job(const ResolvedSettings& slurm, const ResolvedSettings& run);

// The words of the command for the job file. If the run does not set --memory-log, adds this flag. If there are several
// ranks and the run does not set --preflight, adds this flag too.
std::vector<std::string> words_of_job(const JobCommand& command);

}  // namespace tessera
