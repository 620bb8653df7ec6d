#include "tessera/launch/slurm_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "tessera/base/error.h"
#include "tessera/base/text.h"
#include "tessera/settings/setting_words.h"
#include "tessera/settings/slurm_time.h"

namespace tessera {
namespace {

// A folder, followed by `file`, as the value of an option of #SBATCH. `patterns`: whether sbatch replaces patterns
// such as %j in this option. If so, each % character of the folder is doubled.
std::string folder_for_sbatch(const std::string& folder, bool patterns, const std::string& file = "") {
  std::string text;
  for (const char c : folder) {
    if (static_cast<unsigned char>(c) < ' ' || c == 0x7f || c == '"' || c == '\\' || c == '\'') {
      throw UsageError(printable(folder),
                       "sbatch cannot read this path, because it has a quote, a backslash or a "
                       "control character",
                       "Rename the folder");
    }
    text += c;
    if (c == '%' && patterns) text += c;
  }
  text += file;
  return text.find_first_of(" #") == std::string::npos ? text : "\"" + text + "\"";
}

// A line with one option of sbatch, and a comment for the reader of the job file.
std::string option(const std::string& text, const std::string& comment = "") {
  return comment.empty() ? fmt::format("#SBATCH --{}\n", text) : fmt::format("#SBATCH --{:<34} # {}\n", text, comment);
}

std::string resources(const SlurmJob& job) {
  const Settings& s = job.settings;
  std::string text = option("job-name=" + job.name) + option("chdir=" + folder_for_sbatch(job.working_folder, false)) +
                     option(fmt::format("nodes={}", s.nodes)) +
                     option(fmt::format("ntasks-per-node={}", ranks_on_a_node(s)), "ranks on each node");
  if (s.gpus_per_node > 0) text += option(fmt::format("gpus-per-node={}", s.gpus_per_node));
  if (s.cpus_per_task > 0) text += option(fmt::format("cpus-per-task={}", s.cpus_per_task));
  for (const auto& [name, value] : {std::pair{"mem", s.mem},
                                    {"time", s.time},
                                    {"partition", s.partition},
                                    {"account", s.account},
                                    {"constraint", s.constraint}}) {
    if (!value.empty()) text += option(fmt::format("{}={}", name, value));
  }
  return text;
}

// The lines for the signal before the time limit, for starting again, and for the log.
std::string ending(const Settings& s) {
  std::string text;
  if (s.signal_before > 0) {
    text += fmt::format(
        "# Slurm sends USR1 to the ranks {} s before the time limit, or up to 60 s earlier. They save and end "
        "with exit code 75.\n",
        s.signal_before);
    text += option(fmt::format("signal=USR1@{}", s.signal_before));
  }
  text += s.requeue ? option("requeue", "after exit code 75 or the loss of a node") : option("no-requeue");
  return text + option("open-mode=append", "a requeued job continues the log");
}

std::string modules(const Settings& s) {
  if (s.module.empty()) return "";
  std::string names = s.module;
  std::ranges::replace(names, ',', ' ');
  return fmt::format("module load {} || exit 1\n", names);
}

// The srun command that starts the ranks. Each flag after the program begins a new line.
std::string command(const SlurmJob& job) {
  const Settings& s = job.settings;
  const MpiFlavour::Family family = job.mpi.family;
  std::string text = fmt::format("srun --mpi={} --kill-on-bad-exit=0", family == MpiFlavour::Family::mpich  ? "pmi2"
                                                                       : family == MpiFlavour::Family::none ? "none"
                                                                                                            : "pmix");
  // From Slurm 22.05 on, srun does not take --cpus-per-task from sbatch.
  if (s.cpus_per_task > 0) text += fmt::format(" --cpus-per-task={}", s.cpus_per_task);
  const char* next_line = " \\\n  ";
  text += next_line;
  if (!s.container.empty()) {
    text += fmt::format("apptainer exec {}--bind \"$PWD\" {}{}", s.gpus_per_node > 0 ? "--nv " : "",
                        quoted_for_shell(s.container), next_line);
  }
  text += quoted_for_shell(job.program);
  for (const std::string& argument : job.arguments) {
    text += (argument.starts_with("--") ? next_line : " ") + quoted_for_shell(argument);
  }
  return text;
}

std::string requeueing(const Settings& s) {
  if (!s.requeue) return "";
  return fmt::format(R"(
# Exit code 75: a signal stopped the run, and the run saved a checkpoint. With any other exit code, the job ends.
if [ "$code" -eq 75 ]; then
  if [ "${{SLURM_RESTART_COUNT:-0}}" -lt {0} ]; then
    echo "job $SLURM_JOB_ID: the run has saved; the job is queued again"
    scontrol requeue "$SLURM_JOB_ID" || echo "job $SLURM_JOB_ID: scontrol failed; submit the job file again" >&2
  else
    echo "job $SLURM_JOB_ID: already queued again {0} times, the maximum; submit the job file again to continue" >&2
  fi
fi
)",
                     s.max_requeues);
}

bool is_secret_name(const std::string& name) {
  static constexpr std::array kEnds{"_API_KEY", "_TOKEN", "_SECRET", "_PASSWORD", "_ACCESS_KEY", "_JWT"};
  return std::ranges::any_of(kEnds, [&](const char* end) { return name.ends_with(end); });
}

// If the word has a secret, returns the environment variable that can pass this secret to the job: the variable whose
// value or assignment is in the word, or HF_TOKEN for a token of Hugging Face. Otherwise returns an empty text.
std::string secret_in(const std::string& word, const Environment& environment) {
  constexpr size_t kShortestSecret = 12;  // a shorter value may be in the word by accident
  for (const auto& [name, value] : environment) {
    if (is_secret_name(name) && value.size() >= kShortestSecret && word.find(value) != std::string::npos) return name;
  }
  const size_t equals = word.find('=');
  std::string name = word.substr(0, std::min(equals, word.size()));
  if (equals != std::string::npos && equals + 1 < word.size() && is_secret_name(name)) return name;
  const size_t token = word.find("hf_");
  const bool is_token = token != std::string::npos && word.size() >= token + 23 &&
                        std::all_of(word.begin() + static_cast<std::ptrdiff_t>(token) + 3, word.end(),
                                    [](unsigned char c) { return std::isalnum(c) != 0; });
  return is_token ? "HF_TOKEN" : "";
}

}  // namespace

int64_t ranks_on_a_node(const Settings& settings) {
  return settings.ntasks_per_node > 0 ? settings.ntasks_per_node : std::max<int64_t>(1, settings.gpus_per_node);
}

std::string slurm_job_text(const SlurmJob& job) {
  const Settings& s = job.settings;
  // A login shell defines `module`.
  std::string text = s.module.empty() ? "#!/bin/bash\n" : "#!/bin/bash -l\n";
  text += fmt::format(
      "# Written by {}. Submit it: sbatch {}\n"
      "# Stop the run and save: {}\n",
      job.written_by, quoted_for_shell(job.job_file),
      s.requeue ? "scancel --signal=USR1 JOB (the job is queued again), or scancel JOB (it is not queued again)"
                : "scancel JOB");
  text += resources(job) + option(fmt::format("output={}", folder_for_sbatch(job.job_folder, true, "/slurm-%j.log")));
  text += ending(s) + "\n" + modules(s) + "set -euo pipefail\n\n";
  text += "# The ranks end together. Slurm must not kill the other ranks when the first rank ends with exit code 75.\n";
  return text + "code=0\n" + command(job) + " || code=$?\n" + requeueing(s) + "exit \"$code\"\n";
}

void check_no_secrets(const std::vector<std::string>& words, const Environment& environment) {
  for (const std::string& word : words) {
    const std::string name = secret_in(word, environment);
    if (name.empty()) continue;
    throw UsageError(
        name, "a job file must not contain a secret, but an argument contains one",
        fmt::format("Leave the argument out, and set the variable {} in the shell. sbatch passes it to the job", name));
  }
}

}  // namespace tessera
