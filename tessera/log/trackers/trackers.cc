#include "tessera/log/trackers/trackers.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tessera/base/read_file.h"
#include "tessera/log/output_file.h"
#include "tessera/log/trackers/tags.h"
#include "tessera/log/trackers/tensorboard_tracker.h"
#include "tessera/log/trackers/wandb_tracker.h"

namespace tessera {

namespace fs = std::filesystem;

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

namespace {

constexpr const char* kPlaces = "trackers.json";

// The content of trackers.json. Empty if the file is missing or damaged. The trackers then begin new files.
Record read_places(const fs::path& folder) {
  std::error_code ignored;
  if (!fs::exists(folder / kPlaces, ignored)) return Record::object();
  Record places = Record::parse(read_file(folder / kPlaces, {}), nullptr, false);
  return places.is_object() ? places : Record::object();
}

void write_places(const fs::path& folder, const Record& places) {
  const fs::path temporary = folder / fmt::format("{}.tmp-{}", kPlaces, ::getpid());
  {
    OutputFile file(temporary.string(), O_TRUNC);
    file.append(to_pretty_json(places) + "\n");
    file.sync();
  }
  std::error_code error;
  fs::rename(temporary, folder / kPlaces, error);
  if (error) throw RunError((folder / kPlaces).string(), "cannot replace the file: " + error.message());
}

std::vector<std::string> event_files_in(const Record& places) {
  std::vector<std::string> names;
  if (!places.contains("tensorboard") || !places["tensorboard"].is_array()) return names;
  for (const Record& name : places["tensorboard"]) {
    if (name.is_string()) names.push_back(name.get<std::string>());
  }
  return names;
}

// The W&B run to continue: the run in `places` if WANDB_RUN_ID names it, or if this run is resumed and WANDB_RUN_ID is
// not set. Otherwise empty: a new W&B run begins.
WandbTracker::Place run_in(const Record& places, const WandbVariables& variables, bool is_resumed) {
  const Record run = places.value("wandb", Record::object());
  if (!run.is_object()) return {};
  WandbTracker::Place place{run.value("run_id", ""), run.value("folder", "")};
  const bool is_named = place.run_id == variables.run_id;
  return is_named || (is_resumed && variables.run_id.empty()) ? place : WandbTracker::Place{};
}

TrackerRow row_of(const Record& line, double wall_s, double runtime_s) {
  return {.tags = tags_of(line), .step = line.value("step", int64_t{0}), .wall_s = wall_s, .runtime_s = runtime_s};
}

// Adds the lines of metrics.jsonl that the tracker does not have yet. A line has no date, so its time is the start of
// the run (now minus `runtime_s`) plus the runtime that the line records.
void add_missing(Tracker& tracker, const std::vector<Record>& lines, double runtime_s) {
  const double begin_s = seconds_since_1970() - runtime_s;
  double at_s = 0;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (lines[i].contains("timing")) at_s = lines[i]["timing"].value("runtime_s", at_s);
    if (static_cast<int64_t>(i) >= tracker.num_rows()) tracker.append(row_of(lines[i], begin_s + at_s, at_s));
  }
}

std::string effect_of_failure(const char* tracker) {
  return fmt::format("the tracker {} stops", tracker);
}

}  // namespace

void Trackers::guard(const std::string& effect, const std::function<void()>& work,
                     const std::function<void()>& give_up) {
  std::string why;
  try {
    return work();
  } catch (...) {
    why = current_failure().text;
  }
  note_(fmt::format("warning: {}, and the run continues: {}", effect, why));
  give_up();
}

void Trackers::each(const std::function<void(Tracker&)>& work) {
  for (Named& named : trackers_) {
    guard(
        effect_of_failure(named.name), [&] { work(*named.tracker); }, [&] { named.tracker.reset(); });
  }
  std::erase_if(trackers_, [](const Named& named) { return !named.tracker; });
}

void Trackers::start(const char* name, const std::function<std::unique_ptr<Tracker>()>& make) {
  guard(
      effect_of_failure(name),
      [&] {
        trackers_.push_back({name, make()});
      },
      [] {});
}

Trackers::Trackers(const TrackerOptions& options, const std::vector<Record>& lines, double runtime_s, Note note)
    : note_(std::move(note)), last_runtime_s_(runtime_s) {
  const fs::path output = options.output_dir,
                 folder = options.tracker_dir.empty() ? options.output_dir : options.tracker_dir;
  const auto num_lines = static_cast<int64_t>(lines.size());
  Record places;
  guard(
      "the trackers begin new files", [&] { places = read_places(output); }, [] {});
  if (!places.is_object()) places = Record::object();
  places["schema"] = 1;
  if (options.tensorboard) {
    start("tensorboard", [&] {
      auto tracker = std::make_unique<TensorboardTracker>(folder / "tensorboard", event_files_in(places), num_lines,
                                                          options.config);
      places["tensorboard"] = tracker->files();
      write_places(output, places);
      return tracker;
    });
  }
  const WandbVariables& variables = options.wandb_variables;
  if (options.wandb && variables.is_disabled) note_("W&B is disabled by WANDB_MODE or WANDB_DISABLED");
  if (options.wandb && !variables.is_disabled) {
    start("wandb", [&] {
      const fs::path parent = (variables.dir.empty() ? folder : fs::path(variables.dir)) / "wandb";
      auto tracker = std::make_unique<WandbTracker>(parent, run_in(places, variables, num_lines > 0), num_lines,
                                                    variables, options.config);
      places["wandb"] = Record{{"run_id", tracker->place().run_id}, {"folder", tracker->place().folder_name}};
      write_places(output, places);
      note_(fmt::format("W&B run {} is offline{}. To upload it: wandb sync {}", tracker->place().run_id,
                        variables.asks_online ? ", because Tessera does not upload" : "", tracker->folder().string()));
      return tracker;
    });
  }
  each([&](Tracker& tracker) { add_missing(tracker, lines, runtime_s); });
}

Trackers::~Trackers() {
  if (!finished_) finish(static_cast<int>(ExitCode::kRunFailed), Record::object(), last_runtime_s_);
}

void Trackers::append(const Record& line, double runtime_s) {
  last_runtime_s_ = runtime_s;
  each([&](Tracker& tracker) { tracker.append(row_of(line, seconds_since_1970(), runtime_s)); });
}

void Trackers::append_system(const Record& values, int64_t step) {
  each([&](Tracker& tracker) { tracker.append_system(values, step, seconds_since_1970()); });
}

void Trackers::finish(int exit_code, const Record& summary, double runtime_s) {
  finished_ = true;
  each([&](Tracker& tracker) { tracker.finish(exit_code, summary, runtime_s); });
}

Record process_values() {
  const auto value_in = [](const char* path, const std::string& key) {
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
      if (line.starts_with(key + ":")) return std::atof(line.c_str() + key.size() + 1);
    }
    return 0.0;
  };
  constexpr double kKibOfMib = 1024;
  const double total = value_in("/proc/meminfo", "MemTotal"), available = value_in("/proc/meminfo", "MemAvailable"),
               resident = value_in("/proc/self/status", "VmRSS");
  Record values{{"proc.memory.rssMB", resident / kKibOfMib},
                {"proc.memory.availableMB", available / kKibOfMib},
                {"proc.cpu.threads", value_in("/proc/self/status", "Threads")}};
  if (total > 0) {
    values["proc.memory.percent"] = 100 * resident / total;
    values["memory_percent"] = 100 * (total - available) / total;
  }
  return values;
}

}  // namespace tessera
