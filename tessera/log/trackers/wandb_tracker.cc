#include "tessera/log/trackers/wandb_tracker.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/utsname.h>

#include <cmath>
#include <ctime>
#include <nlohmann/json.hpp>
#include <random>

#include "tessera/base/read_file.h"
#include "tessera/log/trackers/wandb_log.h"

namespace tessera {

namespace fs = std::filesystem;

namespace {

// The field numbers of the message Record in wandb_internal.proto.
enum RecordField {
  kNum = 1,
  kHistory = 2,
  kSummary = 3,
  kStats = 7,
  kMetric = 12,
  kRun = 17,
  kExit = 18,
  kFinal = 20,
  kHeader = 21,
  kFooter = 22,
  kEnvironment = 26,
  kInfo = 200
};
// The field numbers of an item, which has a key and a value. The messages inside a Record contain such items. The key
// is in kNestedKey if the item belongs to the history or the summary, else in kKey.
constexpr int kKey = 1, kNestedKey = 2, kValueJson = 16;
// The version of W&B that the file names as its writer. This version knows all fields that Tessera writes.
constexpr const char* kProducer = "0.19.0";
constexpr const char* kMinConsumer = "0.10.0";

// Returns JSON as W&B writes it. Null, NaN and infinity become the word NaN.
std::string value_json(const Record& value) {
  const bool is_finite = !value.is_null() && !(value.is_number_float() && !std::isfinite(value.get<double>()));
  return is_finite ? to_json(value) : "NaN";
}

ProtoMessage item_of(int key_field, const std::string& key, const Record& value) {
  return ProtoMessage().text(key_field, key).text(kValueJson, value_json(value));
}

ProtoMessage timestamp_of(double wall_s) {
  const double seconds = std::floor(wall_s);
  return ProtoMessage().integer(1, static_cast<int64_t>(seconds)).integer(2, std::lround((wall_s - seconds) * 1e9));
}

ProtoMessage stats_of(const Record& values, double wall_s) {
  ProtoMessage stats;
  stats.integer(1, 0).message(2, timestamp_of(wall_s));
  for (const auto& [key, value] : values.items()) stats.message(3, item_of(kKey, key, value));
  return stats;
}

ProtoMessage run_of(const std::string& id, const WandbVariables& variables, const Record& config, double wall_s) {
  enum Field {
    kId = 1,
    kEntity,
    kProject,
    kConfig,
    kGroup = 6,
    kJobType,
    kName,
    kNotes,
    kTags,
    kHost = 13,
    kStart = 17
  };
  utsname machine{};
  ::uname(&machine);
  ProtoMessage settings, run;
  for (const auto& [key, value] : config.items()) settings.message(1, item_of(kKey, key, value));
  run.text(kId, id);
  const auto put = [&](int field, const std::string& text) {
    if (!text.empty()) run.text(field, text);
  };
  put(kEntity, variables.entity);
  put(kProject, variables.project);
  run.message(kConfig, settings);
  put(kGroup, variables.group);
  put(kJobType, variables.job_type);
  put(kName, variables.name);
  put(kNotes, variables.notes);
  for (const std::string& tag : variables.tags) run.text(kTags, tag);
  put(kHost, machine.nodename);
  return run.message(kStart, timestamp_of(wall_s));
}

ProtoMessage environment_of(double wall_s) {
  enum Field { kSystem = 1, kStarted = 3, kProgram = 6, kHost = 12, kWriter = 199 };
  utsname machine{};
  ::uname(&machine);
  return ProtoMessage()
      .text(kSystem, fmt::format("{}-{}-{}", machine.sysname, machine.release, machine.machine))
      .message(kStarted, timestamp_of(wall_s))
      .text(kProgram, "tessera")
      .text(kHost, machine.nodename)
      .text(kWriter, "tessera");
}

// The next two messages make train/global_step the x axis of all tags, as the Hugging Face Trainer does.
ProtoMessage step_metric() {
  return ProtoMessage().text(1, "train/global_step").message(6, ProtoMessage().integer(3, 1));
}
ProtoMessage all_metrics() {
  return ProtoMessage()
      .text(2, "*")
      .text(4, "train/global_step")
      .message(6, ProtoMessage().integer(1, 1).integer(3, 1));
}

}  // namespace

std::string wandb_time_text(double wall_s) {
  const auto seconds = static_cast<std::time_t>(wall_s);
  std::tm parts{};
  ::localtime_r(&seconds, &parts);
  return fmt::format("{:04}{:02}{:02}_{:02}{:02}{:02}", parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday,
                     parts.tm_hour, parts.tm_min, parts.tm_sec);
}

std::string random_run_id() {
  std::random_device source;  // not from the run's seed: two runs with the same seed need different ids
  std::string id;
  for (int i = 0; i < 8; ++i) id += "0123456789abcdefghijklmnopqrstuvwxyz"[source() % 36];
  return id;
}

WandbTracker::WandbTracker(const fs::path& parent, const Place& earlier, int64_t rows_to_keep,
                           const WandbVariables& variables, const Record& config)
    : parent_(parent), place_(earlier) {
  if (place_.run_id.empty()) place_.run_id = variables.run_id.empty() ? random_run_id() : variables.run_id;
  const std::string log_name = "run-" + place_.run_id + ".wandb";
  std::error_code error;
  if (place_.folder_name.empty() || !fs::exists(folder() / log_name, error)) {
    place_.folder_name = fmt::format("offline-run-{}-{}", wandb_time_text(seconds_since_1970()), place_.run_id);
  }
  for (const char* inner : {"files", "logs"}) {
    fs::create_directories(folder() / inner, error);
    if (error) throw RunError(folder().string(), "cannot create the folder: " + error.message());
  }
  file_.emplace((folder() / log_name).string(), 0);
  keep(rows_to_keep);
  if (num_records_ == 0) begin(variables, config);
  for (const char* mark : {".synced", ".syncstate"}) {  // with these marks, wandb sync would skip the new rows
    fs::remove(folder() / (log_name + mark), error);
  }
  fs::remove(parent_ / "latest-run", error);
  fs::create_directory_symlink(place_.folder_name, parent_ / "latest-run", error);  // errors are ignored
}

// Reads the log up to the last row to keep, and restores num_rows_, num_records_ and last_ from it. Removes everything
// after the last row to keep. If there is no such row, empties the file.
void WandbTracker::keep(int64_t rows_to_keep) {
  const std::string log = read_file(file_->path(), {});
  WandbLogReader reader(log);
  int64_t kept_bytes = 0, num_records = 0;
  while (num_rows_ < rows_to_keep) {
    const auto record = reader.next();
    if (!record) break;
    ++num_records;
    const auto history = find_field(*record, kHistory);
    if (!history) continue;
    ProtoReader items(history->bytes);
    while (const auto item = items.next()) {
      const auto key = find_field(item->bytes, kNestedKey), value = find_field(item->bytes, kValueJson);
      if (item->number != 1 || !key || !value) continue;
      last_[std::string(key->bytes)] = value->bytes == "NaN" ? Record() : Record::parse(value->bytes, nullptr, false);
    }
    ++num_rows_;
    num_records_ = num_records;
    kept_bytes = reader.end_bytes();
  }
  file_->truncate(kept_bytes);
}

void WandbTracker::begin(const WandbVariables& variables, const Record& config) {
  file_->append(wandb_log_head());
  const double now = seconds_since_1970();
  write(kHeader, ProtoMessage().message(1, ProtoMessage().text(1, kProducer).text(2, kMinConsumer)));
  write(kRun, run_of(place_.run_id, variables, config, now));
  write(kEnvironment, environment_of(now));
  write(kMetric, step_metric());
  write(kMetric, all_metrics());
}

void WandbTracker::write(int field, const ProtoMessage& value) {
  ProtoMessage record;
  record.integer(kNum, num_records_ + 1).message(field, value).message(kInfo, ProtoMessage().text(1, place_.run_id));
  file_->append(wandb_log_bytes(record.bytes(), file_->size_bytes()));
  ++num_records_;
}

void WandbTracker::append(const TrackerRow& row) {
  Record values = row.tags;
  values["train/global_step"] = row.step;
  values["_step"] = num_rows_;
  values["_runtime"] = row.runtime_s;
  values["_timestamp"] = row.wall_s;
  ProtoMessage history;
  for (const auto& [key, value] : values.items()) {
    history.message(1, item_of(kNestedKey, key, value));
    last_[key] = value;
  }
  write(kHistory, history.message(2, ProtoMessage().integer(1, num_rows_)));
  ++num_rows_;
}

void WandbTracker::append_system(const Record& values, int64_t, double wall_s) {
  write(kStats, stats_of(values, wall_s));
}

void WandbTracker::finish(int exit_code, const Record& summary, double runtime_s) {
  ProtoMessage update;
  const auto put = [&](const Record& values) {
    for (const auto& [key, value] : values.items()) update.message(1, item_of(kNestedKey, key, value));
  };
  put(last_);
  put(summary);
  // Repeats the values of the object "callbacks" outside this object, because KAUST's workshop uses their names without
  // a prefix.
  if (summary.contains("callbacks")) put(summary.at("callbacks"));
  write(kSummary, update);
  write(kExit, ProtoMessage().integer(1, exit_code).integer(2, std::lround(runtime_s)));
  write(kFinal, {});
  write(kFooter, {});
  file_->sync();
}

}  // namespace tessera
