// tessera slurm
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>

#include "tessera/app/command_line.h"
#include "tessera/app/help.h"
#include "tessera/app/usage_errors.h"
#include "tessera/base/error.h"
#include "tessera/launch/slurm_job.h"
#include "tessera/report/console.h"
#include "tessera/report/text.h"
#include "tessera/settings/slurm_time.h"
#include "tessera/store/file.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

// The training command of a job.
struct JobCommand {
  const Verb* verb;
  ParsedFlags flags;
  ResolvedSettings resolved;
};

bool has_flag(const ParsedFlags& flags, const Setting& setting) {
  return std::ranges::any_of(flags.values, [&](const auto& flag) { return flag.first == &setting; });
}

ResolvedSettings settings_of_job_command(const JobCommand& command, const std::vector<std::string>& words,
                                         const Invocation& invocation) {
  const auto& verbs = all_verbs();
  const int64_t ranks = invocation.settings().nodes * ranks_on_a_node(invocation.settings());
  return resolve({.flags = command.flags.values,
                  .environment = invocation.environment,
                  .file = config_of(command.flags.config_file, words, command.verb->groups, verbs),
                  .num_ranks = ranks},
                 command.verb->groups, command.verb->name, names_of(verbs));
}

// Parses the command after the flags of `slurm`: "train run.toml --lr 1e-4", or without the verb.
JobCommand parse_job_command(const Invocation& invocation) {
  const auto& verbs = all_verbs();
  std::vector<std::string> words = invocation.command;
  if (words.empty()) {
    throw UsageError("slurm", "needs the command of the job", "Example: " + invocation.verb->example);
  }
  for (const std::string& word : words) {
    const Setting* setting = word.starts_with("--") ? find_setting(word.substr(2, word.find('=') - 2)) : nullptr;
    if (setting && setting->group == kSlurm) {
      throw UsageError(setting->flag(), "is a setting of the job", "Write it before the command of the run");
    }
  }
  const Verb* verb = take_verb(words, verbs);
  if (!verb && words[0].find_first_of("./") == std::string::npos) unknown_verb(words, verbs);
  if (verb && verb->name != "train") {
    throw UsageError(verb->name, "slurm writes job files of training runs only", "Write: tessera slurm ... train ...");
  }
  if (!verb) verb = &*std::ranges::find(verbs, "train", &Verb::name);
  JobCommand command{.verb = verb, .flags = parse_flags(words, *verb, verb->groups, verbs), .resolved = {}};
  command.resolved = settings_of_job_command(command, words, invocation);
  // The job shall not depend on the variables of the shell that submits it.
  for (const auto& [name, origin] : command.resolved.origins) {
    if (origin.kind != Origin::Kind::environment) continue;
    const Setting* setting = find_setting(name);
    const SettingValue value = setting->get(command.resolved.settings);
    const auto* text = std::get_if<std::string>(&value);
    command.flags.values.emplace_back(setting, text ? *text : toml_text(value));
  }
  check_consistent(command.resolved);
  check_required(*verb, command.resolved);
  return command;
}

// Adds a setting to the command if this program has it and the command leaves it open.
void add_default(JobCommand& command, const char* name, const std::string& value) {
  const Setting* setting = find_setting(name);
  if (!setting || !(setting->group & command.verb->groups) || command.resolved.is_given(name)) return;
  parse_value(*setting, value, setting->flag());  // throws: the value is wrong
  if (!has_flag(command.flags, *setting)) command.flags.values.emplace_back(setting, value);
}

std::vector<std::string> words_of_job(const JobCommand& command) {
  std::vector<std::string> words{command.verb->name};
  if (!command.flags.config_file.empty()) words.push_back(command.flags.config_file);
  for (const auto& [setting, text] : command.flags.values) {
    if (setting->type == SettingType::boolean) {
      const bool is_on = std::get<bool>(parse_value(*setting, text, setting->flag()));
      words.push_back(is_on ? setting->flag() : "--no-" + dashed(setting->name));
    } else if (text.empty() || text.starts_with("-")) {
      words.push_back(setting->flag() + "=" + text);
    } else {
      words.push_back(setting->flag());
      words.push_back(text);
    }
  }
  return words;
}

// Refuses settings of the run that would fail in the job, or never end.
void check_run_of_job(const ResolvedSettings& run, const Settings& slurm) {
  const Settings& s = run.settings;
  const int64_t ranks = slurm.nodes * ranks_on_a_node(slurm);
  if (s.nproc > 0 && s.nproc != ranks) {
    throw UsageError(run.where("nproc"), fmt::format("{} contradicts the {} ranks of the job", s.nproc, ranks),
                     "Leave it out. --nodes and --ntasks-per-node give the ranks");
  }
  if (s.max_restarts > 0) {
    throw UsageError(run.where("max_restarts"), "needs --nproc, but Slurm starts the ranks", "Leave it out");
  }
  if (slurm.requeue && s.resume != "auto") {
    throw UsageError(run.where("resume"),
                     fmt::format("{} would begin again each time the job is queued again", quoted_value(s.resume)),
                     "Leave it out, or add --no-requeue before the command");
  }
}

void check_limits_of_job(const ResolvedSettings& resolved) {
  const Settings& s = resolved.settings;
  if (s.time.empty() || s.signal_before == 0) return;
  const int64_t limit = parse_slurm_time(s.time, resolved.where("time"));
  if (s.signal_before < limit) return;
  throw UsageError(resolved.where("signal_before"),
                   fmt::format("{} s before the end of {} s is before the start", s.signal_before, limit),
                   "Give a longer --time, or a shorter --signal-before");
}

// The name of a job: letters that every cluster accepts.
std::string job_name_of(const fs::path& folder) {
  std::string name = folder.filename().string();
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '-' && c != '_' && c != '.') c = '-';
  }
  return name.empty() ? "tessera" : name;
}

std::string path_of_this_program() {
  std::error_code error;
  const fs::path path = fs::read_symlink("/proc/self/exe", error);
  return error ? "tessera" : path.string();
}

void write_job_file(const fs::path& path, const std::string& text, bool replace) {
  std::error_code error;
  if (fs::exists(path, error)) {
    if (!replace) {
      throw UsageError(path.string(), "exists already", "Add --replace before the command, or another --job-file");
    }
    fs::remove(path, error);
  }
  if (path.has_parent_path()) create_folders(path.parent_path());
  write_new_file(path, text);
}

}  // namespace

int run_slurm(const Invocation& invocation) {
  const Settings& slurm = invocation.settings();
  check_limits_of_job(invocation.resolved);
  check_no_secrets(invocation.command, invocation.environment);
  check_no_secrets({slurm.container, slurm.job_name, slurm.account}, invocation.environment);
  JobCommand command = parse_job_command(invocation);
  check_run_of_job(command.resolved, slurm);
  if (slurm.gpus_per_node == 0) check_supported(command.resolved);  // another machine may have GPUs
  const std::string output = command.resolved.settings.output_dir;
  const fs::path folder = fs::absolute(output).lexically_normal();
  const std::string memory_log = (fs::path(output) / "memory").string();
  add_default(command, "memory_log", memory_log + (memory_log.find(':') == std::string::npos ? "" : ":5"));
  if (slurm.nodes * ranks_on_a_node(slurm) > 1) add_default(command, "preflight", "nettest");
  const bool prints = slurm.job_file == "-";
  const std::string file =
      prints || slurm.job_file.empty() ? (fs::path(output) / "job.sbatch").string() : slurm.job_file;
  const std::vector<std::string> words = words_of_job(command);
  check_no_secrets(words, invocation.environment);
  const std::string text = slurm_job_text({
      .settings = slurm,
      .mpi = mpi_flavour(),
      .program = slurm.container.empty() ? path_of_this_program() : "tessera",
      .arguments = words,
      .name = slurm.job_name.empty() ? job_name_of(folder) : slurm.job_name,
      .working_folder = fs::current_path().string(),
      .job_folder = folder.string(),
      .job_file = file,
      .written_by = version_text(),
  });
  Console console = Console::of_process();
  for (const auto& warning : command.resolved.warnings) {
    const auto& printed = invocation.resolved.warnings;  // those about the environment are in both
    if (std::ranges::find(printed, warning) == printed.end()) console.note("warning: " + warning);
  }
  if (prints) {
    console.print(text.substr(0, text.size() - 1));
    return static_cast<int>(ExitCode::kDone);
  }
  write_job_file(file, text, slurm.replace);
  create_folders(folder);  // for the log: without it, Slurm ends the job at once and without a message
  console.print(fmt::format("{}: submit it with: sbatch {}", file, quoted_for_shell(file)));
  return static_cast<int>(ExitCode::kDone);
}

}  // namespace tessera
