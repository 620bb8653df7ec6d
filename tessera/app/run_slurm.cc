// tessera slurm
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <set>

#include "tessera/app/help.h"
#include "tessera/app/job_command.h"
#include "tessera/app/sweep_runs.h"
#include "tessera/base/counted.h"
#include "tessera/base/error.h"
#include "tessera/base/option_names.h"
#include "tessera/base/process.h"
#include "tessera/base/text.h"
#include "tessera/launch/slurm_job.h"
#include "tessera/launch/slurm_submission.h"
#include "tessera/log/console.h"
#include "tessera/store/file.h"
#include "tessera/sweep/run_state.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

// A file that is not written yet: a job file, or the script that submits several job files.
struct NewFile {
  std::string path;  // as in the command that submits the file
  std::string text{};
  // The folder of the job's log. If this folder is missing when the job starts, Slurm ends the job without a message.
  // Empty for the script.
  fs::path folder{};
};

// Replaces characters that a cluster may not accept in the name of a job.
std::string job_name_of(std::string name) {
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '-' && c != '_' && c != '.') c = '-';
  }
  return name.empty() ? "tessera" : name;
}

std::string path_of_this_program() {
  const std::string path = own_program();
  return path.empty() ? "tessera" : path;
}

// The job file of a run. An empty `file` means job.sbatch in the output folder. `name`: the job's name if --job-name is
// not given; an empty `name` means the name of the output folder.
NewFile job_file_of(const JobCommand& command, std::string file, const std::string& name,
                    const Environment& environment) {
  const Settings& slurm = command.slurm;
  check_no_secrets({slurm.container, slurm.job_name, slurm.account}, environment);
  const std::vector<std::string> words = words_of_job(command);
  check_no_secrets(words, environment);
  const std::string output = command.resolved.settings.output_dir;
  const fs::path folder = fs::absolute(output).lexically_normal();
  if (file.empty()) file = (fs::path(output) / "job.sbatch").string();
  const std::string text = slurm_job_text({
      .settings = slurm,
      .mpi = mpi_flavour(),
      .program = slurm.container.empty() ? path_of_this_program() : "tessera",
      .arguments = words,
      .name = slurm.job_name.empty() ? job_name_of(name.empty() ? folder.filename().string() : name) : slurm.job_name,
      .working_folder = fs::current_path().string(),
      .job_folder = folder.string(),
      .job_file = file,
      .written_by = version_text(),
  });
  return {file, text, folder};
}

// Checks all files before it writes the first one.
void write_files(const std::vector<NewFile>& files, bool replace) {
  std::error_code error;
  std::set<fs::path> paths;
  for (const NewFile& file : files) {
    if (std::ranges::any_of(file.path, [](unsigned char c) { return c < ' ' || c == 0x7f; })) {
      throw UsageError(printable(file.path), "contains a control character",
                       "Give a --job-file without control characters");
    }
    if (!paths.insert(fs::absolute(file.path).lexically_normal()).second) {
      throw UsageError(file.path, "is the job file of two jobs, or of a job and of the script that submits the jobs",
                       "Give another --job-file");
    }
    if (fs::exists(file.path, error) && !replace) {
      throw UsageError(file.path, "exists already", "Add --replace before the command, or give another --job-file");
    }
  }
  for (const NewFile& file : files) {
    if (replace && !fs::remove(file.path, error) && error) {
      throw RunError(file.path, "cannot replace it: " + error.message());
    }
    if (const fs::path parent = fs::path(file.path).parent_path(); !parent.empty()) create_folders(parent);
    write_new_file(file.path, file.text);
    if (!file.folder.empty()) create_folders(file.folder);
  }
}

// Prints each warning of `commands` once. Omits the warnings in `own`, the settings of tessera slurm, because
// run_command_line() has printed them.
void print_warnings(const std::vector<JobCommand>& commands, const ResolvedSettings& own, Console& console) {
  std::set<std::string> printed(own.warnings.begin(), own.warnings.end());
  for (const JobCommand& command : commands) {
    for (const auto& warning : command.resolved.warnings) {
      if (printed.insert(warning).second) console.note("warning: " + warning);
    }
  }
}

// Runs `words`, the command that submits the job or jobs. Without `submits`, prints `text` and the command instead.
int submit_or_print(const std::string& text, const std::vector<std::string>& words, bool submits, Console& console) {
  if (!submits) {
    console.print(fmt::format("{}{} {}", text, words[0], quoted_for_shell(words[1])));
    return static_cast<int>(ExitCode::kDone);
  }
  const int code = run_and_wait(words);
  if (code == 0) return code;
  const std::string again = fmt::format("{} {}", words[0], quoted_for_shell(words[1]));
  throw RunError(again, fmt::format("ended with exit code {}", code),
                 words[0] == "sbatch"
                     ? "Submit later with the same command"
                     : "In the list in the script, delete the jobs that are already queued. Then run the script again");
}

int one_job(const Invocation& invocation) {
  const Settings& slurm = invocation.settings();
  const JobCommand command = parse_job_command(invocation.command, invocation.resolved, invocation.environment);
  const bool prints = slurm.job_file == "-";
  const NewFile file = job_file_of(command, prints ? "" : slurm.job_file, "", invocation.environment);
  Console console = Console::of_process();
  print_warnings({command}, invocation.resolved, console);
  if (prints) {
    console.print(file.text.substr(0, file.text.size() - 1));
    return static_cast<int>(ExitCode::kDone);
  }
  write_files({file}, slurm.replace);
  return submit_or_print(file.path + ": submit it with: ", {"sbatch", file.path}, slurm.submit, console);
}

// The runs of a sweep. `words`: the words after "sweep", that is, the sweep file and the flags.
std::vector<SweepRun> runs_of_command(const std::vector<std::string>& words, const Environment& environment) {
  const auto& verbs = all_verbs();
  const Verb& sweep = *std::ranges::find(verbs, "sweep", &Verb::name);
  const ParsedFlags flags = parse_flags(words, sweep, sweep.groups | sweep.run_groups, verbs);
  for (const auto& [setting, value] : flags.values) {
    if (setting->group == kSweep) throw UsageError(setting->flag(), "belongs to tessera sweep, not to tessera slurm");
  }
  return runs_of_sweep(flags.config_file, flags.values, environment, false);
}

// The deepest folder that contains the output folders of all runs. Empty if relative paths have no common folder.
fs::path common_folder(const std::vector<SweepRun>& runs) {
  fs::path common = fs::path(runs[0].output_dir).lexically_normal();
  for (const SweepRun& run : runs) {
    const fs::path folder = fs::path(run.output_dir).lexically_normal();
    const auto [end, unused] = std::mismatch(common.begin(), common.end(), folder.begin(), folder.end());
    fs::path shared;
    for (auto part = common.begin(); part != end; ++part) shared /= *part;
    common = shared;
  }
  return common;
}

int jobs_of_sweep(const Invocation& invocation, const std::vector<std::string>& words) {
  const Settings& slurm = invocation.settings();
  if (slurm.job_file == "-") {
    throw UsageError(invocation.resolved.where("job_file"), "must not be -, because a sweep has several job files");
  }
  const std::vector<SweepRun> runs = runs_of_command(words, invocation.environment);
  Console console = Console::of_process();
  std::vector<JobCommand> commands;
  std::vector<NewFile> files;
  for (const SweepRun& run : runs) {
    const RunState state = state_of_run(run.output_dir, run.resolved);
    if (state != RunState::open) {
      console.note(
          fmt::format("{}: no job, because the run is {}", run.name, state == RunState::done ? "done" : "in use"));
      continue;
    }
    commands.push_back(parse_job_command(run.arguments, invocation.resolved, invocation.environment));
    files.push_back(job_file_of(commands.back(), "", run.name, invocation.environment));
  }
  print_warnings(commands, invocation.resolved, console);
  if (files.empty()) {
    console.print("No run of the sweep needs a job.");
    return static_cast<int>(ExitCode::kDone);
  }
  SlurmSubmission submission{
      .job_files = {},
      .max_jobs = slurm.max_jobs,
      .working_folder = fs::current_path().string(),
      .script = slurm.job_file.empty() ? (common_folder(runs) / "submit.sh").string() : slurm.job_file,
      .written_by = version_text()};
  for (const NewFile& file : files) submission.job_files.push_back(file.path);
  if (slurm.job_file.empty() && fs::path(submission.script).parent_path() == fs::path("/")) {
    throw UsageError(option_place("job_file"), "the output folders of the runs have no common folder for the script",
                     "Name the script with --job-file");
  }
  const size_t count = submission.job_files.size();
  files.push_back({submission.script, slurm_submission_text(submission)});
  write_files(files, slurm.replace);
  return submit_or_print(fmt::format("{}: submit {} with: ", submission.script, counted(count, "job")),
                         {"bash", submission.script}, slurm.submit, console);
}

}  // namespace

int run_slurm(const Invocation& invocation) {
  const Settings& slurm = invocation.settings();
  std::vector<std::string> words = invocation.command;
  if (words.empty()) {
    throw UsageError("slurm", "needs the command of the job", "Example: " + invocation.verb->example);
  }
  check_no_secrets(words, invocation.environment);
  if (slurm.submit) {
    const std::string where = invocation.resolved.where("submit");
    if (slurm.job_file == "-") throw UsageError(where, "needs a job file, but --job-file - writes none");
    if (!program_in_path(invocation.environment, "sbatch")) {
      throw UsageError(where, "sbatch is not in PATH",
                       "Run this command where Slurm is installed, or leave out --submit and submit the file there");
    }
  }
  if (words[0] != "sweep") return one_job(invocation);
  words.erase(words.begin());
  return jobs_of_sweep(invocation, words);
}

}  // namespace tessera
