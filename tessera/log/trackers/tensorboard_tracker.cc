#include "tessera/log/trackers/tensorboard_tracker.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "tessera/base/read_file.h"
#include "tessera/log/trackers/event_file.h"
#include "tessera/log/trackers/tags.h"

namespace tessera {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kPrefix = "events.out.tfevents.";

// The time in the name of an event file, in seconds since 1970. TensorBoard reads the files of a folder in the order of
// their names, so the time comes directly after the prefix. Returns 0 if the name has no such prefix.
int64_t seconds_in(const std::string& name) {
  return name.starts_with(kPrefix) ? std::atoll(name.c_str() + kPrefix.size()) : 0;
}

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0 || name[0] == '\0') return "localhost";
  return name.data();
}

// Lines that begin with four spaces are code in Markdown.
std::string as_code(const std::string& text) {
  std::string code = "    ";
  for (const char c : text) {
    code += c;
    if (c == '\n') code += "    ";
  }
  return code;
}

}  // namespace

TensorboardTracker::TensorboardTracker(const fs::path& folder, std::vector<std::string> files, int64_t rows_to_keep,
                                       const Record& config) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw RunError(folder.string(), "cannot create the folder: " + error.message());
  int64_t seconds = static_cast<int64_t>(seconds_since_1970());
  for (const std::string& name : files) seconds = std::max(seconds, seconds_in(name) + 1);
  keep(folder, std::move(files), rows_to_keep);
  files_.push_back(fmt::format("{}{:010}.{}.{}.0", kPrefix, seconds, host_name(), ::getpid()));
  file_.emplace((folder / files_.back()).string(), O_TRUNC);
  const double now = seconds_since_1970();
  file_->append(event_bytes(version_event(now)));
  file_->append(event_bytes(start_event(last_step_ + 1, now)));
  if (num_rows_ == 0) {
    file_->append(event_bytes(text_event("args/text_summary", as_code(to_pretty_json(config)), now)));
  }
}

void TensorboardTracker::keep(const fs::path& folder, std::vector<std::string> files, int64_t rows_to_keep) {
  std::error_code ignored;
  bool is_complete = false;  // all rows to keep are in the files before this one
  for (const std::string& name : files) {
    const fs::path path = folder / name;
    if (!fs::exists(path, ignored)) continue;
    is_complete = is_complete || num_rows_ >= rows_to_keep;
    if (is_complete) {
      fs::remove(path, ignored);
      continue;
    }
    const std::string bytes = read_file(path, {});
    EventFileReader reader(bytes);
    int64_t kept_bytes = 0, step = 0;
    while (num_rows_ < rows_to_keep) {
      const auto event = reader.next();
      if (!event) break;
      if (!has_tag(*event, kEpochTag, step)) continue;
      ++num_rows_;
      last_step_ = step;
      kept_bytes = reader.end_bytes();
    }
    if (kept_bytes == 0) {
      fs::remove(path, ignored);
      continue;
    }
    files_.push_back(name);
    OutputFile file(path.string(), 0);
    file.truncate(kept_bytes);
  }
}

void TensorboardTracker::append(const TrackerRow& row) {
  file_->append(event_bytes(scalars_event(row.tags, row.step, row.wall_s)));
  ++num_rows_;
}

void TensorboardTracker::append_system(const Record& values, int64_t step, double wall_s) {
  Record scalars = Record::object();
  for (const auto& [key, value] : values.items()) scalars["system/" + key] = value;
  file_->append(event_bytes(scalars_event(scalars, step, wall_s)));
}

}  // namespace tessera
