#include "tessera/train/run_start.h"

#include <fmt/format.h>

#include "tessera/log/metrics_log.h"
#include "tessera/store/all_ranks.h"
#include "tessera/store/atomic_folder.h"
#include "tessera/store/checkpoint_writer.h"
#include "tessera/store/replaceable.h"

namespace tessera {

namespace fs = std::filesystem;

namespace {

constexpr const char* kResults[] = {"model", "summary.json"};  // only a finished run has them
constexpr std::string_view kOverwrittenRun = "overwritten-run";

bool has_results(const fs::path& folder) {
  for (const std::string& name : names_in_folder(folder)) {
    for (const char* result : kResults) {
      if (name == result) return true;
    }
  }
  return false;
}

// Whether --resume names `origin` (the checkpoint that a run began from) or the folder that contains this checkpoint.
bool began_from(const std::string& origin, const std::string& resume) {
  const fs::path asked = full_path(resume);
  return !origin.empty() && (origin == asked || fs::path(origin).parent_path() == asked);
}

// Whether move_run_aside() has made a folder with this name: "overwritten-run", "overwritten-run-2", ...
bool is_overwritten_run(std::string_view name) {
  if (!name.starts_with(kOverwrittenRun)) return false;
  name.remove_prefix(kOverwrittenRun.size());
  return name.empty() || (name.size() > 1 && name[0] == '-' && name.find_first_not_of("0123456789", 1) == name.npos);
}

// Moves the results, checkpoints and logs of the run in `folder` to a new subfolder. A user can move them back by hand.
void move_run_aside(const fs::path& folder) {
  const std::vector<int64_t> steps = checkpoint_steps(folder);
  if (steps.empty() && !has_results(folder)) return;
  const fs::path target = free_name(folder / kOverwrittenRun);
  create_folders(target);
  std::vector<std::string> names{"summary.json", "model", "resolved-config.toml"};
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) names.push_back(fmt::format("checkpoint-{}", *step));
  names.insert(names.end(), {MetricsLog::kFileName, "trackers.json", "tensorboard", "wandb"});
  for (const std::string& name : names) {
    if (fs::exists(folder / name)) rename_folder(folder / name, target / name);
  }
}

// Throws UsageError if the settings are the same, but an older version made other batches of them.
void refuse_older_program(const Checkpoint& checkpoint, const std::vector<Change>& forbidden) {
  const std::string remedy = remedy_for_older_program(forbidden, checkpoint.folder().string());
  if (!remedy.empty()) throw UsageError(state_file(checkpoint), listed(forbidden), remedy);
}

[[noreturn]] void refuse_other_settings(const Checkpoint& checkpoint, const std::vector<Change>& forbidden) {
  refuse_older_program(checkpoint, forbidden);
  std::string remedy =
      "Use the same settings to continue that run, another --output-dir to keep both, or --overwrite to replace it";
  if (forbidden_among(forbidden, true).empty()) {
    remedy += fmt::format(". --resume {} with another --output-dir begins a new run from there with the new settings",
                          checkpoint.folder().string());
  }
  throw UsageError(state_file(checkpoint), listed(forbidden), remedy);
}

// What --resume names. All ranks use the result of the first rank. Collective.
enum class Source { nothing, newest, here, elsewhere };
Source source_of_start(const Settings& settings, Communicator& world) {
  if (settings.resume == "none") return Source::nothing;
  if (settings.resume == "auto") return Source::newest;
  const fs::path asked = full_path(settings.resume), own = full_path(settings.output_dir);
  const bool is_here = asked == own || asked.parent_path() == own;
  const auto seen = on_all_ranks(world, "the folder of --resume", [&] { return is_here ? "here" : ""; });
  return seen[0].empty() ? Source::elsewhere : Source::here;
}

// Throws UsageError if the run would replace files that Tessera did not write: in `model`, or, with --overwrite, in
// checkpoints. A run that saves its model refuses this, too, but only at its end. Collective.
void refuse_to_lose_files(const Settings& settings, Communicator& world) {
  on_all_ranks(world, "the files in the output folder", [&]() -> std::string {
    if (world.rank() != 0) return "";
    check_replaceable(fs::path(settings.output_dir) / "model", why_no_saved_model);
    if (!settings.overwrite) return "";
    for (const int64_t step : checkpoint_steps(settings.output_dir)) {
      check_replaceable(checkpoint_folder(settings.output_dir, step), why_no_own_checkpoint);
    }
    return "";
  });
}

// Throws UsageError if the output folder has results, unless --overwrite is given. Collective.
void refuse_to_replace_results(const Settings& settings, Communicator& world) {
  on_all_ranks(world, "the results in the output folder", [&]() -> std::string {
    if (world.rank() != 0 || settings.overwrite || !has_results(settings.output_dir)) return "";
    const std::string why = settings.resume == "none"   ? "--resume none does not continue it"
                            : settings.resume == "auto" ? "it left no checkpoint to continue from"
                                                        : "this run begins from a checkpoint of another folder";
    throw UsageError(
        settings.output_dir, "holds the results of an earlier run, and " + why,
        "Choose another --output-dir, or give --overwrite to replace the results. To train the model of the "
        "earlier run further, give --model " +
            settings.output_dir + " and another --output-dir");
  });
}

RunStart::From read_start(Checkpoint checkpoint, const Record& fingerprint) {
  const std::string text = checkpoint.trainer_state(), where = state_file(checkpoint);
  TrainState state = TrainState::from_json(text, where);
  return {std::move(checkpoint), std::move(state),
          changes_between(TrainState::fingerprint_in(text, where), fingerprint)};
}

}  // namespace

fs::path full_path(const fs::path& path) {
  std::error_code ignored;  // an unreadable path is reported when it is used
  const fs::path full = fs::weakly_canonical(fs::absolute(path), ignored);
  return full.has_filename() ? full : full.parent_path();
}

std::string state_file(const Checkpoint& checkpoint) {
  return (checkpoint.folder() / "trainer_state.json").string();
}

RunStart choose_start(Session& session, const Record& fingerprint) {
  const Settings& settings = session.settings();
  Communicator& world = session.world();
  const auto warn = [&](const std::string& text) { session.console().note("warning: " + text); };
  const Source source = source_of_start(settings, world);
  refuse_to_lose_files(settings, world);
  std::optional<Checkpoint> own;
  if (source == Source::here) {
    own = find_checkpoint(settings.resume, world, warn, &session.pool());
  } else if (source != Source::nothing) {
    own = latest_checkpoint(settings.output_dir, world, warn, &session.pool());
  }
  if (own) {
    RunStart::From from = read_start(std::move(*own), fingerprint);
    const auto forbidden = forbidden_among(from.changes, false);
    const bool is_asked_for = source != Source::elsewhere || began_from(from.state.origin, settings.resume);
    if (is_asked_for && forbidden.empty()) {
      const bool is_chosen = source == Source::here && full_path(settings.resume) != full_path(settings.output_dir);
      return {std::move(from), false, is_chosen};
    }
    if (is_asked_for && (source == Source::here || !settings.overwrite)) {
      refuse_other_settings(from.checkpoint, forbidden);
    }
    if (!settings.overwrite) {
      throw UsageError(settings.output_dir, "holds the checkpoints of a run that --resume does not name",
                       "Choose another --output-dir, or give --overwrite to replace that run");
    }
  }
  refuse_to_replace_results(settings, world);
  if (source != Source::elsewhere) return {};
  RunStart::From from = read_start(find_checkpoint(settings.resume, world, warn, &session.pool()), fingerprint);
  if (const auto forbidden = forbidden_among(from.changes, true); !forbidden.empty()) {
    refuse_older_program(from.checkpoint, forbidden);
    throw UsageError(state_file(from.checkpoint), listed(forbidden),
                     "Use the values of the checkpoint's run, or take only its model with tessera export");
  }
  // The best and the last sound checkpoint (TrainHealth) are not in the folder of this run.
  from.state.origin = full_path(from.checkpoint.folder()).string();
  from.state.best_metric.reset();
  from.state.best_step = 0;
  from.state.health.sound_checkpoint = -1;
  from.state.stop_steps.clear();
  return {std::move(from)};
}

void make_way(Session& session) {
  const Settings& settings = session.settings();
  Communicator& world = session.world();
  on_all_ranks(world, "moving an earlier run aside", [&]() -> std::string {
    if (world.rank() == 0 && settings.overwrite) move_run_aside(settings.output_dir);
    return "";
  });
  set_checkpoints_aside(settings.output_dir, world, -1, "superseded",
                        [&](const std::string& text) { session.console().note(text); });
}

void forget_overwritten_runs(const Settings& settings, const fs::path& folder) {
  if (!settings.overwrite) return;
  for (const std::string& name : names_in_folder(folder)) {
    if (is_overwritten_run(name)) remove_folder_atomically(folder / name);
  }
}

}  // namespace tessera
