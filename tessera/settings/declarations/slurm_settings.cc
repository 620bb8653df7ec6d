// Declares the settings for Slurm's job files. Most of these settings have the names of sbatch's options.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "tessera/settings/declarations/declaring.h"
#include "tessera/settings/slurm_time.h"

namespace tessera::declaring {

namespace {

// Checks a text that becomes part of a line of the job file. sbatch and the shell would not take blanks, quotes, $ and
// # literally.
std::string checked_word(const std::string& text, const std::string& where) {
  const auto is_wrong = [](char c) { return static_cast<unsigned char>(c) <= ' ' || c == 0x7f || c == '#'; };
  if (std::ranges::any_of(text, is_wrong) || text.find_first_of("\"'\\`$") != std::string::npos) {
    throw UsageError(where, fmt::format("must have no blanks, quotes, $, # or \\, got {}", quoted_value(text)));
  }
  return text;
}

std::string checked_time(const std::string& text, const std::string& where) {
  return text.empty() ? "" : slurm_time_text(parse_slurm_time(text, where));
}

std::string checked_memory(const std::string& text, const std::string& where) {
  const size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  const std::string unit = text.substr(digits);
  const bool is_unit = unit.empty() || unit == "K" || unit == "M" || unit == "G" || unit == "T";
  if (!text.empty() && (digits == 0 || !is_unit)) {
    throw UsageError(
        where, fmt::format("must be a whole number, optionally followed by K, M, G or T, got {}", quoted_value(text)),
        "Write for example 64G. 0 asks for all memory of the nodes");
  }
  return text;
}

Setting with_grammar(Setting setting, std::string (*canonical)(const std::string&, const std::string&)) {
  setting.parse = canonical;
  return setting;
}

}  // namespace

std::vector<Setting> slurm_settings() {
  return {
      integer(
          "nodes", &S::nodes, brief(kNodes, "nodes"), "N", {1, 1 << 20},
          "Number of nodes. By default as many as the run's nproc needs, or 1. A plan has --ranks-per-node ranks on "
          "each of them, by default 8, or divides --nproc ranks among them"),
      integer(
          "gpus_per_node", &S::gpus_per_node, brief(kSlurm, "GPUs of each node"), "N", {0, 1024},
          "Number of GPUs on each node. If the run's nproc needs fewer ranks on a node than this number, the job asks "
          "Slurm for only one GPU per rank. 0: compute on CPUs"),
      integer("ntasks_per_node", &S::ntasks_per_node, brief(kSlurm, "ranks of each node; 0: one for each GPU"), "RANKS",
              {0, 4096}, "Number of ranks on each node; 0: one for each GPU; on nodes without GPUs, one"),
      integer("cpus_per_task", &S::cpus_per_task, brief(kSlurm, "cores of each rank"), "N", {0, 4096},
              "Number of CPU cores of each rank; 0: Slurm's default, usually one"),
      with_grammar(text("time", &S::time, brief(kSlurm, "time limit, as in 4:00:00"), "TIME",
                        "Time limit as in sbatch: minutes, H:MM:SS, or days-H:MM:SS; empty: the partition's limit"),
                   checked_time),
      with_grammar(text("partition", &S::partition, brief(kSlurm, "partition of the cluster"), "NAME",
                        "Partition (queue) of the cluster; empty: its default"),
                   checked_word),
      with_grammar(text("account", &S::account, kSlurm, "NAME", "Account that pays for the job"), checked_word),
      with_grammar(text("constraint", &S::constraint, kSlurm, "FEATURES",
                        "Features that the nodes must have, as in sbatch: a100, or \"a100&nvlink\""),
                   checked_word),
      with_grammar(
          text("mem", &S::mem, kSlurm, "SIZE", "Host memory of each node: 64G; 0: all of it; empty: Slurm's default"),
          checked_memory),
      with_grammar(
          text("job_name", &S::job_name, kSlurm, "NAME", "Name of the job; empty: the name of the output folder"),
          checked_word),
      with_grammar(text("module", &S::module, kSlurm, "NAME,...",
                        "Environment modules to load before the run, as in cuda/12.4,openmpi/4.1"),
                   checked_word),
      text("container", &S::container, kSlurm, "IMAGE",
           "Image that holds the program tessera; the job runs it with apptainer exec. Empty: run this program itself"),
      boolean("requeue", &S::requeue, kSlurm,
              "If a signal stopped the run and the run saved a checkpoint (exit code 75), queue the job again"),
      integer("max_requeues", &S::max_requeues, kSlurm, "N", {1, 100000},
              "Maximum number of times that the job queues itself again"),
      integer(
          "signal_before", &S::signal_before, brief(kSlurm, "when to stop and save before the time limit"), "SECONDS",
          {0, 65535},
          "The job stops the run, saves and queues itself again this many seconds before the time limit; loading and "
          "saving must take less time than this; 0: never"),
      text("job_file", &S::job_file, brief(kSlurm, "the file to write; -: print it"), "FILE|-",
           "The job file to write; -: print it; empty: job.sbatch in the output folder. For a sweep: the script that "
           "submits all jobs; empty: submit.sh in the folder of all runs"),
      boolean("replace", &S::replace, kSlurm, "Replace the job file if it exists"),
      boolean("submit", &S::submit, brief(kSlurm, "also submit the job"),
              "Submit the job, or all jobs of a sweep, with sbatch"),
      integer("max_jobs", &S::max_jobs, kSlurm, "N", {0, 1 << 20},
              "Number of jobs of a sweep that may run at the same time; the others wait; 0: no limit"),
  };
}

}  // namespace tessera::declaring

namespace tessera {

int64_t parse_slurm_time(const std::string& text, const std::string& where) {
  const auto fail = [&] {
    throw UsageError(where, fmt::format("is not a time limit of sbatch: {}", quoted_value(text)),
                     "Write minutes (90), hours:minutes:seconds (4:00:00) or days-hours:minutes:seconds (1-12:00:00)");
  };
  const size_t dash = text.find('-');
  std::vector<int64_t> numbers;  // the days, if given, and the numbers that colons separate
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end =
        std::min(text.find(numbers.empty() && dash != std::string::npos ? '-' : ':', begin), text.size());
    int64_t number = 0;
    const auto [stop, error] = std::from_chars(text.data() + begin, text.data() + end, number);
    if (error != std::errc() || stop != text.data() + end || number < 0 || number > 1'000'000) fail();
    numbers.push_back(number);
    begin = end + 1;
  }
  const bool has_days = dash != std::string::npos;
  if (numbers.empty() || numbers.size() > (has_days ? 4u : 3u) || (has_days && numbers.size() < 2)) fail();
  int64_t seconds = 0;
  if (has_days) {  // days-hours[:minutes[:seconds]]
    constexpr std::array<int64_t, 4> kUnits{86400, 3600, 60, 1};
    for (size_t i = 0; i < numbers.size(); ++i) seconds += numbers[i] * kUnits[i];
  } else if (numbers.size() == 3) {
    seconds = numbers[0] * 3600 + numbers[1] * 60 + numbers[2];
  } else {  // minutes[:seconds]
    seconds = numbers[0] * 60 + (numbers.size() == 2 ? numbers[1] : 0);
  }
  if (seconds == 0) fail();
  return seconds;
}

std::string slurm_time_text(int64_t seconds) {
  const int64_t days = seconds / 86400, rest = seconds % 86400;
  const std::string clock = fmt::format("{:02}:{:02}:{:02}", rest / 3600, rest / 60 % 60, rest % 60);
  return days > 0 ? fmt::format("{}-{}", days, clock) : clock;
}

}  // namespace tessera
