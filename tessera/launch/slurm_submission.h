// Submits the job files of a sweep, in order.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tessera {

struct SlurmSubmission {
  std::vector<std::string> job_files;  // at least one
  int64_t max_jobs = 1;                // the number of jobs that may run at the same time; 0: no limit
  std::string working_folder;          // absolute; paths in `job_files` are relative to it
  std::string script;                  // the path of the script, as the user starts it
  std::string written_by;              // the program's version, for a comment
};

// A bash script that submits the job files. A job waits for the end of the job that is `max_jobs` places earlier, even
// if that job fails. For Slurm, a job that is queued again has not ended.
std::string slurm_submission_text(const SlurmSubmission& submission);

// Finds a program on PATH, runs it with the streams of this process, and waits for its end. Returns the exit code, or
// 128 + n if signal n killed it. Throws RunError if the program cannot start.
int run_and_wait(const std::vector<std::string>& words);

}  // namespace tessera
