#include "tessera/report/memory_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <map>
#include <optional>

#include "tessera/base/error.h"
#include "tessera/base/read_file.h"
#include "tessera/base/text.h"

namespace tessera {

namespace fs = std::filesystem;

namespace {

std::string_view next_line(std::string_view& text) {
  const std::string_view line = text.substr(0, text.find('\n'));
  text.remove_prefix(std::min(text.size(), line.size() + 1));
  return line;
}

std::optional<double> number_of(std::string_view text) {
  text = trimmed(text);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) return {};
  return value;
}

// The time "2025/01/31 10:00:05.000" in seconds. Only the difference between two results has a meaning.
std::optional<double> seconds_of(const std::string& text) {
  int year = 0, month = 0, day = 0, hour = 0, minute = 0;
  double second = 0;
  if (std::sscanf(text.c_str(), "%d/%d/%d %d:%d:%lf", &year, &month, &day, &hour, &minute, &second) != 6) return {};
  if (year < 1 || year > 9999 || month < 1 || month > 12 || day < 1 || day > 31) return {};
  const int y = year - (month <= 2), m = (month + 9) % 12;  // years that begin in March end with the leap day
  const int64_t days = 365 * int64_t{y} + y / 4 - y / 100 + y / 400 + (153 * m + 2) / 5 + day - 1;
  return static_cast<double>(days * 86400 + hour * 3600 + minute * 60) + second;
}

}  // namespace

std::vector<MemorySeries> parse_gpu_memory_log(std::string_view text, const std::string& node) {
  std::map<int, MemorySeries> by_index;
  std::optional<double> begin;
  while (!text.empty()) {
    std::string_view line = next_line(text);
    std::vector<std::string_view> cells;
    while (true) {
      const size_t comma = line.find(',');
      cells.push_back(trimmed(line.substr(0, comma)));
      if (comma == line.npos) break;
      line.remove_prefix(comma + 1);
    }
    if (cells.size() < 4) continue;
    const auto seconds = seconds_of(std::string(cells[0]));
    const auto index = number_of(cells[1]), mib = number_of(cells[3]);
    if (!seconds || !index || !mib || *index < 0 || *index > 1e6) continue;
    if (!begin) begin = seconds;
    MemorySeries& series = by_index[static_cast<int>(*index)];
    series.seconds.push_back(*seconds - *begin);
    series.mib.push_back(*mib);
  }
  std::vector<MemorySeries> all;
  for (auto& [index, series] : by_index) {
    series.name = node.empty() ? fmt::format("GPU {}", index) : fmt::format("GPU {} of {}", index, node);
    all.push_back(std::move(series));
  }
  return all;
}

MemorySeries parse_cpu_memory_log(std::string_view text, const std::string& node) {
  MemorySeries series{.name = node.empty() ? "CPU" : "CPU of " + node, .seconds = {}, .mib = {}};
  while (!text.empty()) {
    std::string_view line = trimmed(next_line(text));
    std::vector<double> numbers;
    while (!line.empty()) {
      const size_t end = std::min(line.find_first_of(" \t"), line.size());
      const auto number = number_of(line.substr(0, end));
      if (!number) break;
      numbers.push_back(*number);
      line = trimmed(line.substr(end));
    }
    if (numbers.size() < 3) continue;
    series.seconds.push_back(numbers[0]);
    series.mib.push_back(numbers[2]);
  }
  return series;
}

namespace {

// Returns the name of the node in a file name that starts with `begin` and ends with `end`: "node1" for
// "gpu_memory_log_node1.csv", and an empty text for "gpu_memory_log.csv". Returns nothing for all other names, and for
// the log of an earlier start of the run ("gpu_memory_log.1.csv").
std::optional<std::string> node_of(std::string_view name, std::string_view begin, std::string_view end) {
  if (!name.starts_with(begin) || !name.ends_with(end) || name.size() < begin.size() + end.size()) return {};
  name = name.substr(begin.size(), name.size() - begin.size() - end.size());
  if (name.empty()) return "";
  const size_t dot = name.rfind('.');
  const bool is_earlier =
      dot != name.npos && dot + 1 < name.size() && name.find_first_not_of("0123456789", dot + 1) == name.npos;
  if (is_earlier || !name.starts_with('_')) return {};
  return std::string(name.substr(1));
}

}  // namespace

std::vector<MemorySeries> read_memory_logs(const std::vector<fs::path>& folders,
                                           const std::function<void(const fs::path&, const std::string&)>& report) {
  std::vector<fs::path> files;
  for (const fs::path& folder : folders) {
    std::error_code error;
    fs::directory_iterator entries(folder, error);
    for (; !error && entries != fs::directory_iterator(); entries.increment(error)) files.push_back(entries->path());
    if (error && error != std::errc::no_such_file_or_directory) report(folder, "cannot be read: " + error.message());
  }
  std::sort(files.begin(), files.end(),
            [](const fs::path& a, const fs::path& b) { return natural_less(a.string(), b.string()); });
  std::vector<MemorySeries> all;
  for (const fs::path& file : files) {
    const std::string name = file.filename().string();
    const auto gpu_node = node_of(name, "gpu_memory_log", ".csv"), cpu_node = node_of(name, "cpu_memory_log", ".txt");
    if (!gpu_node && !cpu_node) continue;
    try {
      const std::string text = read_file(file, {.longest_bytes = 256 << 20});
      if (gpu_node) {
        for (auto& series : parse_gpu_memory_log(text, *gpu_node)) all.push_back(std::move(series));
      } else if (MemorySeries series = parse_cpu_memory_log(text, *cpu_node); !series.mib.empty()) {
        all.push_back(std::move(series));
      }
    } catch (const InputError& error) {
      const std::string why = error.what(), place = file.string() + ": ";
      report(file, why.starts_with(place) ? why.substr(place.size()) : why);
    }
  }
  return all;
}

}  // namespace tessera
