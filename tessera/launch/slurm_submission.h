// Makes a script that submits the job files of a sweep. run_and_wait() runs this script with bash, or runs sbatch for a
// single job file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tessera {

struct SlurmSubmission {
  std::vector<std::string> job_files;  // at least one
  int64_t max_jobs = 1;                // the number of jobs that may run at the same time; 0: no limit
  std::string working_folder;          // absolute; paths in `job_files` are relative to it
  std::string script;                  // the path of the script; a comment in the script shows it to the user
  std::string written_by;              // the program's version, for a comment in the script
};

// A bash script that submits the job files in order. A job starts only when the job that is `max_jobs` places earlier
// has ended, with success or not. A job that Slurm puts back into the queue has not ended.
std::string slurm_submission_text(const SlurmSubmission& submission);

// Finds a program on PATH, runs it with the streams of this process, and waits for its end. Returns the exit code, or
// 128 + n if signal n killed it. Throws RunError if the program cannot start.
int run_and_wait(const std::vector<std::string>& words);

}  // namespace tessera
