#include "tessera/app/job_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "tessera/app/usage_errors.h"
#include "tessera/base/counted.h"
#include "tessera/base/error.h"
#include "tessera/launch/slurm_job.h"
#include "tessera/settings/slurm_time.h"
#include "tessera/settings/verb_groups.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

const Verb& train_verb() {
  return *std::ranges::find(all_verbs(), "train", &Verb::name);
}

int64_t ranks_of(const Settings& slurm) {
  return slurm.nodes * ranks_on_a_node(slurm);
}

// Throws UsageError if the command of the run contains a setting of the job.
void check_no_settings_of_job(const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    const Setting* setting = word.starts_with("--") ? find_setting(word.substr(2, word.find('=') - 2)) : nullptr;
    if (setting && setting->group & kSlurmVerb) {
      throw UsageError(setting->flag(), "is a setting of the job", "Write it before the command of the run");
    }
  }
}

// Removes "train" from the beginning of the words. The words may also begin with a recipe, without a verb. Throws
// UsageError for other verbs.
void take_train(std::vector<std::string>& words) {
  const auto& verbs = all_verbs();
  const Verb* verb = take_verb(words, verbs);
  if (!verb && words[0].find_first_of("./") == std::string::npos) unknown_verb(words, verbs);
  if (verb && verb->name != "train") {
    throw UsageError(verb->name, "slurm writes job files only for training runs",
                     "Write: tessera slurm ... train ..., or tessera slurm ... sweep ...");
  }
}

// Refuses settings that would make the run fail in the job, or start from the beginning each time the job is queued
// again.
void check_run_of_job(const ResolvedSettings& run, const Settings& slurm) {
  const Settings& s = run.settings;
  if (s.max_restarts > 0) {
    throw UsageError(run.where("max_restarts"), "needs --nproc, but Slurm starts the ranks",
                     "Remove the setting max_restarts");
  }
  if (slurm.requeue && s.resume != "auto") {
    throw UsageError(
        run.where("resume"),
        fmt::format("{} would begin the run again each time the job is queued again", quoted_value(s.resume)),
        "Remove the setting resume, or add --no-requeue before the command");
  }
}

void check_limits_of_job(const ResolvedSettings& slurm) {
  const Settings& s = slurm.settings;
  if (s.time.empty() || s.signal_before == 0) return;
  const int64_t limit = parse_slurm_time(s.time, slurm.where("time"));
  if (s.signal_before < limit) return;
  throw UsageError(slurm.where("signal_before"),
                   fmt::format("{} s is not less than the time limit of the job, {} s", s.signal_before, limit),
                   "Give a longer --time, or a shorter --signal-before");
}

// Adds a flag for each setting whose value came from a TESSERA_* variable.
void add_environment(JobCommand& command) {
  for (const auto& [name, origin] : command.resolved.origins) {
    if (origin.kind != Origin::Kind::environment) continue;
    const Setting* setting = find_setting(name);
    const SettingValue value = setting->get(command.resolved.settings);
    if (setting->type == SettingType::list) {
      for (const std::string& each : texts_of(value)) command.flags.values.emplace_back(setting, each);
      continue;
    }
    command.flags.values.emplace_back(setting, plain_text(value));
  }
}

// Adds a setting to the flags, unless a flag, an environment variable or the recipe of the run gives it.
void add_default(ParsedFlags& flags, const ResolvedSettings& run, const char* name, const std::string& value) {
  const Setting* setting = find_setting(name);
  if (!setting || !(setting->group & run.groups) || run.is_given(name)) return;
  parse_value(*setting, value, setting->flag());  // throws if the value is wrong
  flags.values.emplace_back(setting, value);
}

}  // namespace

ResolvedSettings with_recipes_table(ResolvedSettings slurm, const std::string& recipe) {
  if (recipe.empty()) return slurm;
  const auto& verbs = all_verbs();
  const SettingSources sources{.flags = {}, .environment = {}, .file = config_of(recipe, {recipe}, kSlurmVerb, verbs)};
  const ResolvedSettings table = resolve(sources, kSlurmVerb, "slurm", names_of(verbs));
  for (const Setting* setting : settings_of(kSlurmVerb)) {
    if (slurm.is_given(setting->name) || !table.is_given(setting->name)) continue;
    setting->set(slurm.settings, setting->get(table.settings));
    slurm.origins[setting->name] = table.origins.at(setting->name);
  }
  return slurm;
}

Settings resources_of_job(const ResolvedSettings& slurm, const ResolvedSettings& run) {
  Settings s = slurm.settings;
  const int64_t ranks = run.settings.nproc;
  if (ranks == 0 || (slurm.is_given("nodes") && ranks == ranks_of(s))) return s;
  if (slurm.is_given("nodes")) {
    throw UsageError(run.where("nproc"),
                     fmt::format("{} contradicts the {} of the job", ranks, counted(ranks_of(s), "rank")),
                     "Remove the setting nproc. --nodes and --ntasks-per-node give the number of ranks");
  }
  int64_t most = run.settings.ranks_per_node > 0 ? run.settings.ranks_per_node : ranks;
  if (s.gpus_per_node > 0) most = std::min(most, s.gpus_per_node);
  if (s.ntasks_per_node > 0) most = s.ntasks_per_node;
  const int64_t on_a_node = std::min(ranks, most);
  if (ranks % on_a_node != 0) {
    throw UsageError(
        run.where("nproc"),
        fmt::format("{} cannot be divided into nodes of {} each", counted(ranks, "rank"), counted(on_a_node, "rank")),
        "Give --ntasks-per-node and --nodes before the command");
  }
  s.nodes = ranks / on_a_node;
  s.ntasks_per_node = on_a_node;
  if (!slurm.is_given("ntasks_per_node")) s.gpus_per_node = std::min(s.gpus_per_node, on_a_node);
  return s;
}

JobCommand parse_job_command(std::vector<std::string> words, const ResolvedSettings& slurm,
                             const Environment& environment) {
  check_no_settings_of_job(words);
  take_train(words);
  const auto& verbs = all_verbs();
  const Verb& train = train_verb();
  JobCommand command{.flags = parse_flags(words, train, train.groups, verbs), .resolved = {}, .slurm = {}};
  const ResolvedSettings job = with_recipes_table(slurm, command.flags.config_file);
  check_limits_of_job(job);
  SettingSources sources{.flags = command.flags.values,
                         .environment = environment,
                         .file = config_of(command.flags.config_file, words, train.groups, verbs)};
  const auto resolve_run = [&] { return resolve(sources, train.groups, train.name, names_of(verbs)); };
  command.slurm = resources_of_job(job, resolve_run());
  sources.num_ranks = ranks_of(command.slurm);
  command.resolved = resolve_run();
  std::vector<std::string>& warnings = command.resolved.warnings;
  warnings.insert(warnings.begin(), command.flags.warnings.begin(), command.flags.warnings.end());
  add_environment(command);
  check_consistent(command.resolved);
  check_required(train, command.resolved);
  check_run_of_job(command.resolved, command.slurm);
  // A node with GPUs may support settings that this machine does not support. Therefore the settings of a job with GPUs
  // are not compared with this machine.
  if (command.slurm.gpus_per_node == 0) check_supported(command.resolved);
  return command;
}

std::vector<std::string> words_of_job(const JobCommand& command) {
  ParsedFlags flags = command.flags;
  const std::string memory_log = (fs::path(command.resolved.settings.output_dir) / "memory").string();
  add_default(flags, command.resolved, "memory_log",
              memory_log + (memory_log.find(':') == std::string::npos ? "" : ":5"));
  if (ranks_of(command.slurm) > 1) add_default(flags, command.resolved, "preflight", "nettest");
  std::vector<std::string> words{"train"};
  if (!flags.config_file.empty()) words.push_back(flags.config_file);
  for (const auto& [setting, text] : flags.values) {
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

}  // namespace tessera
