#include "tessera/launch/slurm_submission.h"

#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "tessera/base/counted.h"
#include "tessera/base/error.h"
#include "tessera/base/text.h"
#include "tessera/base/uninterrupted.h"

namespace tessera {

std::string slurm_submission_text(const SlurmSubmission& submission) {
  const auto count = submission.job_files.size();
  const bool waits = submission.max_jobs > 0 && static_cast<uint64_t>(submission.max_jobs) < count;
  std::string text = fmt::format("#!/bin/bash\n# Written by {}. Start it: bash {}\n", submission.written_by,
                                 quoted_for_shell(submission.script));
  text += waits ? fmt::format(
                      "# {} jobs, at most {} at once. From job {} on, each job waits for the end of an earlier job, "
                      "even if that job fails.\n",
                      count, submission.max_jobs, submission.max_jobs + 1)
                : fmt::format("# {}. No job waits for another job.\n", counted(count, "job"));
  text += fmt::format("set -euo pipefail\ncd {}\n\nfiles=(\n", quoted_for_shell(submission.working_folder));
  for (const std::string& file : submission.job_files) text += "  " + quoted_for_shell(file) + "\n";
  text += ")\njobs=()\nfor file in \"${files[@]}\"; do\n  words=(--parsable)\n";
  if (waits) {
    text +=
        fmt::format("  if [ \"${{#jobs[@]}}\" -ge {0} ]; then words+=(\"--dependency=afterany:${{jobs[-{0}]}}\"); fi\n",
                    submission.max_jobs);
  }
  return text + R"(  if ! job=$(sbatch "${words[@]}" "$file"); then
    echo "error: sbatch refused $file. Jobs that are already queued: ${#jobs[@]} (from the beginning of the list). Before you run this script again, delete them from the list" >&2
    exit 1
  fi
  jobs+=("${job%%;*}") # a cluster's name may follow
  echo "${jobs[-1]} $file"
done
)";
}

int run_and_wait(const std::vector<std::string>& words) {
  std::vector<std::string> copies = words;
  std::vector<char*> arguments;
  for (std::string& word : copies) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  pid_t child = 0;
  if (const int reason = posix_spawnp(&child, arguments[0], nullptr, nullptr, arguments.data(), environ)) {
    throw RunError(words[0], fmt::format("cannot start: {}", std::strerror(reason)));
  }
  int status = 0;
  if (uninterrupted([&] { return waitpid(child, &status, 0); }) != child) {
    throw RunError(words[0], fmt::format("cannot wait for its end: {}", std::strerror(errno)));
  }
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace tessera
