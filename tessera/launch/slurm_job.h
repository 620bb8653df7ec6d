// The job file of a training run: a script for Slurm's sbatch.
#pragma once

#include <string>
#include <vector>

#include "tessera/base/process.h"
#include "tessera/comm/mpi_flavour.h"
#include "tessera/settings/settings.h"

namespace tessera {

// A job is one training run.
struct SlurmJob {
  Settings settings;                   // the groups kSlurmVerb: resources and options of the job
  MpiFlavour mpi;                      // the MPI that the program uses
  std::string program;                 // the path of the program on the nodes
  std::vector<std::string> arguments;  // "train" and what follows it
  std::string name;
  std::string working_folder;  // absolute; paths in `arguments` are relative to it
  std::string job_folder;      // absolute; the folder of the log. It must exist when the job starts
  std::string job_file;        // the path of the job file, as the user gives it to sbatch
  std::string written_by;      // the program and its version, for a comment in the job file
};

// The number of ranks on each node: --ntasks-per-node, or --gpus-per-node if --ntasks-per-node is 0. At least 1.
int64_t ranks_on_a_node(const Settings& settings);

// The text of the job file. Throws UsageError if the path of a folder has a character that sbatch cannot read.
std::string slurm_job_text(const SlurmJob& job);

// Throws UsageError if a word contains a secret, because other users can often read a job file. A secret is the value
// of a variable such as WANDB_API_KEY or HF_TOKEN, an assignment to such a variable, or a token of Hugging Face. The
// error does not contain the secret.
void check_no_secrets(const std::vector<std::string>& words, const Environment& environment);

}  // namespace tessera
