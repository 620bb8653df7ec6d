// Submits the job files of a sweep, in order.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tessera {

struct SlurmSubmission {
  std::vector<std::string> job_files;  // at least one
  int64_t max_jobs = 1;                // that run at the same time; 0: no limit
  std::string working_folder;          // absolute; the paths are relative to it
  std::string script;                  // as the user starts it
  std::string written_by;              // a comment: the program's version
};

// A bash script that gives the job files to sbatch. A job waits for the end of the job `max_jobs` places before it,
// also if that job fails. For Slurm, a job that is queued again has not ended.
std::string slurm_submission_text(const SlurmSubmission& submission);

// Runs a program that PATH finds, with the streams of this process, and waits for its end. Returns the exit code, or
// 128 + n if signal n killed it. Throws RunError if it cannot start.
int run_and_wait(const std::vector<std::string>& words);

}  // namespace tessera
