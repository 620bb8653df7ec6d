#include "tessera/report/run_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <limits>
#include <set>

#include "tessera/base/counted.h"
#include "tessera/base/error.h"
#include "tessera/base/read_file.h"
#include "tessera/base/text.h"
#include "tessera/report/memory_files.h"

namespace tessera {

namespace fs = std::filesystem;

namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr uint64_t kLongestSummary = 64 << 20, kLongestMetrics = 1 << 30;
constexpr int kDeepest = 16;

bool has_entry(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

// Removes a text in quotes from the beginning of a TOML value. Returns the text without its quotes.
std::string take_toml_text(std::string_view& text) {
  std::string value;
  size_t i = 1;
  for (; i < text.size() && text[i] != '"'; ++i) {
    if (text[i] != '\\' || i + 1 == text.size()) {
      value += text[i];
      continue;
    }
    const char c = text[++i];
    if (c == 'u') {  // a control character
      value += '?';
      i += 4;
    } else {
      value += c == 'n' || c == 't' ? ' ' : c;
    }
  }
  text.remove_prefix(std::min(i + 1, text.size()));
  return value;
}

// The value of a TOML line: a text without its quotes, the texts of a list with ", " between them, or another value
// unchanged. A comment after the value is omitted.
std::string toml_value(std::string_view text) {
  if (text.starts_with('"')) return take_toml_text(text);
  if (text.starts_with("[\"")) {
    std::string list;
    for (text.remove_prefix(1); text.starts_with('"'); text.remove_prefix(text.starts_with(", ") ? 2 : 0)) {
      list += (list.empty() ? "" : ", ") + take_toml_text(text);
    }
    return list;
  }
  text = text.substr(0, text.find('#'));
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return std::string(text);
}

class RunReader {
 public:
  explicit RunReader(RunSet& set) : set_(set) {}

  void add_argument(const std::string& path) {
    std::error_code error;
    const fs::file_status status = fs::status(path, error);
    if (status.type() == fs::file_type::not_found) return report(path, "no such folder");
    if (status.type() == fs::file_type::none) return report(path, "cannot be read: " + error.message());
    if (status.type() != fs::file_type::directory) {
      return report(path, "is not a folder. Name the output folder of a run, or a folder that holds such folders");
    }
    const size_t before = set_.runs.size() + set_.problems.size() + known_again_;
    add_folder(path, 0);
    if (set_.runs.size() + set_.problems.size() + known_again_ == before) {
      report(path, "contains no run: neither this folder nor a folder below it has a summary.json");
    }
  }

 private:
  void report(const fs::path& path, const std::string& what) {
    set_.problems.push_back(fmt::format("{}: {}", printable(path.string(), 400), what));
  }

  void add_folder(const fs::path& folder, int depth) {
    std::error_code error;
    const fs::path canonical = fs::canonical(folder, error);
    if (!error && !known_.insert(canonical.string()).second) {
      ++known_again_;
      return;
    }
    fs::directory_iterator entries(folder, error);
    if (error) return report(folder, "cannot be read: " + error.message());
    if (has_entry(folder / "summary.json") || has_entry(folder / "metrics.jsonl") ||
        has_entry(folder / "resolved-config.toml")) {
      return add_run(folder);
    }
    if (depth == kDeepest) return report(folder, fmt::format("is nested deeper than {} folders", kDeepest));
    std::vector<std::string> names;
    for (; !error && entries != fs::directory_iterator(); entries.increment(error)) {
      std::error_code unknown;
      if (entries->is_directory(unknown)) names.push_back(entries->path().filename().string());
    }
    if (error) report(folder, "cannot be read: " + error.message());
    std::sort(names.begin(), names.end(), natural_less);
    for (const std::string& name : names) add_folder(folder / name, depth + 1);
  }

  void add_run(const fs::path& folder) {
    const fs::path summary = folder / "summary.json";
    std::error_code error;
    if (fs::status(summary, error).type() == fs::file_type::not_found) {
      return report(folder, "has no summary.json: the run has not ended. Start the same command again to finish it");
    }
    RunFolder run;
    run.path = folder.string();
    try {
      run.summary = record_from_json(read_file(summary, {.longest_bytes = kLongestSummary}), summary.string());
    } catch (const InputError& failure) {
      set_.problems.push_back(fmt::format("{}. The run is left out", failure.what()));
      return;
    }
    const auto schema = find_number(run.summary, "schema");
    if (schema != 1.0) {
      return report(summary,
                    schema
                        ? fmt::format("has schema {}, but this program reads only schema 1: another version of Tessera "
                                      "wrote it. The run is left out",
                                      *schema)
                        : "has no schema: it is not a summary of Tessera. The run is left out");
    }
    run.experiment = find_text(run.summary, "experiment");
    read_config(folder, run);
    read_metrics(folder, run);
    // The logs are usually in the run's folder or in the folder "memory" below it. If --memory-log names another folder
    // that exists, the logs are read only from there. A relative path is resolved from the current folder, so it names
    // the right folder only if the run was started in the current folder.
    std::vector<fs::path> logs{folder / "memory", folder};
    if (const fs::path log = memory_log_folder(run); !log.empty() && fs::is_directory(log, error) &&
                                                     !fs::equivalent(log, logs[0], error) &&
                                                     !fs::equivalent(log, folder, error)) {
      logs = {log};
    }
    run.memory = read_memory_logs(logs, [&](const fs::path& path, const std::string& what) { report(path, what); });
    set_.runs.push_back(std::move(run));
  }

  // The folder in the setting memory_log, which is FOLDER[:SECONDS]. Empty if the run has no such setting.
  static fs::path memory_log_folder(const RunFolder& run) {
    const auto it = run.settings.find("memory_log");
    if (it == run.settings.end()) return {};
    const size_t colon = it->second.rfind(':');
    const bool has_seconds = colon != it->second.npos && colon + 1 < it->second.size() &&
                             it->second.find_first_not_of("0123456789.e-", colon + 1) == it->second.npos;
    return has_seconds ? it->second.substr(0, colon) : it->second;
  }

  void read_config(const fs::path& folder, RunFolder& run) {
    try {
      run.settings =
          parse_resolved_config(read_file(folder / "resolved-config.toml", {.longest_bytes = uint64_t{1} << 20}));
    } catch (const InputError& failure) {
      set_.problems.push_back(fmt::format("{}. The settings of the run are not known", failure.what()));
    }
    if (run.experiment.empty() && run.settings.contains("experiment")) run.experiment = run.settings["experiment"];
  }

  void read_metrics(const fs::path& folder, RunFolder& run) {
    const fs::path path = folder / "metrics.jsonl";
    std::string text;
    try {
      text = read_file(path, {.longest_bytes = kLongestMetrics});
    } catch (const InputError& failure) {
      set_.problems.push_back(fmt::format("{}. The page has no curves of the run", failure.what()));
      return;
    }
    int64_t line = 0, num_bad = 0, num_not_finite = 0;
    std::string first_bad;
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = std::min(text.find('\n', begin), text.size());
      ++line;
      try {
        num_not_finite += add_record(record_from_json(std::string_view(text).substr(begin, end - begin),
                                                      fmt::format("{}:{}", path.string(), line)),
                                     run);
      } catch (const InputError& failure) {
        if (num_bad++ == 0) first_bad = failure.what();
      }
      begin = end + 1;
    }
    if (num_bad > 0) {
      set_.problems.push_back(
          num_bad == 1 ? fmt::format("{}. The line is left out", first_bad)
                       : fmt::format("{}. This and {} are left out", first_bad, counted(num_bad - 1, "more line")));
    }
    if (num_not_finite > 0) {
      report(path, num_not_finite == 1
                       ? std::string("1 loss is NaN or infinite. It is left out of the curves")
                       : fmt::format("{} losses are NaN or infinite. They are left out of the curves", num_not_finite));
    }
  }

  // Adds a record of metrics.jsonl to the run, if the record's kind is "train" or "eval". Returns 1 if a record of kind
  // "train", "eval" or "skipped" has a loss that is NaN or infinite (null in the file), otherwise 0. If a step has no
  // target, its loss is also null, but nothing is wrong with it.
  static int64_t add_record(const Record& record, RunFolder& run) {
    const auto number = [&](const char* key) { return find_number(record, key).value_or(kNaN); };
    const auto step = find_number(record, "step");
    const std::string kind = find_text(record, "kind");
    if (!step || *step < 0 || *step > 1e15) return 0;
    const auto at = static_cast<int64_t>(*step);
    if (kind == "train") {
      run.train.push_back({at, number("epoch"), number("loss"), number("learning_rate"), number("timing.runtime_s"),
                           number("timing.samples_per_second")});
      return record.contains("loss") && !std::isfinite(run.train.back().loss) && number("num_targets") != 0;
    }
    if (kind == "eval") {
      run.evals.push_back(
          {at, number("epoch"), number("eval_loss"), number("timing.eval_runtime"), number("timing.answers_runtime")});
      return record.contains("eval_loss") && !std::isfinite(run.evals.back().loss);
    }
    return kind == "skipped" && record.contains("loss") && !std::isfinite(number("loss"));
  }

  RunSet& set_;
  std::set<std::string> known_;
  size_t known_again_ = 0;
};

// Names each run by the last folders of its path. All names have the same number of folders: the smallest number that
// makes all names different. If kDeepest folders are not enough, the names are the complete paths.
void name_runs(std::vector<RunFolder>& runs) {
  const auto end_of = [](const std::string& path, size_t num_names) {
    const fs::path whole = fs::path(path).lexically_normal();
    std::vector<std::string> names;
    for (const auto& name : whole) {
      if (!name.empty() && name != "/") names.push_back(name.string());
    }
    std::string text;
    for (size_t i = names.size() - std::min(num_names, names.size()); i < names.size(); ++i) {
      text += (text.empty() ? "" : "/") + names[i];
    }
    return text.empty() ? path : text;
  };
  for (size_t num_names = 1; num_names <= kDeepest; ++num_names) {
    std::set<std::string> names;
    for (RunFolder& run : runs) {
      run.name = end_of(run.path, num_names);
      names.insert(run.name);
    }
    if (names.size() == runs.size()) return;
  }
  for (RunFolder& run : runs) run.name = run.path;
}

}  // namespace

std::map<std::string, std::string> parse_resolved_config(std::string_view text) {
  std::map<std::string, std::string> settings;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const size_t equals = line.find(" = ");
    if (equals == line.npos || equals == 0) continue;
    const std::string_view name = line.substr(0, equals);
    const auto fits = [](char c) { return (c >= 'a' && c <= 'z') || is_digit(c) || c == '_'; };
    if (std::all_of(name.begin(), name.end(), fits)) settings[std::string(name)] = toml_value(line.substr(equals + 3));
  }
  return settings;
}

RunSet read_runs(const std::vector<std::string>& paths) {
  RunSet set;
  RunReader reader(set);
  for (const std::string& path : paths) reader.add_argument(path);
  name_runs(set.runs);
  return set;
}

}  // namespace tessera
