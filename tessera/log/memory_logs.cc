#include "tessera/log/memory_logs.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <ctime>
#include <optional>
#include <vector>

#include "tessera/base/counted.h"
#include "tessera/base/error.h"
#include "tessera/base/read_file.h"
#include "tessera/base/text.h"

namespace tessera {

namespace fs = std::filesystem;

namespace {

std::string_view take_line(std::string_view& text) {
  const size_t end = std::min(text.find('\n'), text.size());
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return line;
}

template <typename Number>
std::optional<Number> number_of(std::string_view text) {
  text = trimmed(text);
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  if (!std::isfinite(static_cast<double>(value))) return std::nullopt;
  return value;
}

std::vector<std::string_view> cells_of(std::string_view line) {
  std::vector<std::string_view> cells;
  for (size_t begin = 0; begin <= line.size();) {
    const size_t end = std::min(line.find(',', begin), line.size());
    cells.push_back(line.substr(begin, end - begin));
    begin = end + 1;
  }
  return cells;
}

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  for (line = trimmed(line); !line.empty(); line = trimmed(line)) {
    const size_t end = std::min(line.find_first_of(" \t"), line.size());
    words.push_back(line.substr(0, end));
    line.remove_prefix(end);
  }
  return words;
}

std::string modes_text(const MemoryStatistics& statistics) {
  std::string text;
  for (const double mode : statistics.modes()) text += fmt::format("{}{:.0f}", text.empty() ? "" : ", ", mode);
  return text;
}

std::string note_of_unreadable(const fs::path& file, int64_t count) {
  return count == 0 ? "" : fmt::format("[!] Skipped {} of {}\n", counted(count, "unreadable row"), file.string());
}

// The files in `folder`, `folder`/memory and `folder`/`own` whose names have this prefix and suffix, sorted by path.
// `any_in_own`: the names of files in `own` may have any prefix.
std::vector<fs::path> logs_in(const fs::path& folder, const std::string& own, const std::string& prefix,
                              const std::string& suffix, bool any_in_own) {
  std::vector<fs::path> files;
  for (const fs::path& place : {folder, folder / "memory", folder / own}) {
    const bool any = any_in_own && place == folder / own;
    std::error_code error;
    fs::directory_iterator entries(place, error);
    for (; !error && entries != fs::directory_iterator(); entries.increment(error)) {
      const std::string name = entries->path().filename().string();
      if ((any || name.starts_with(prefix)) && name.ends_with(suffix)) files.push_back(entries->path());
    }
  }
  std::sort(files.begin(), files.end(), [](const fs::path& a, const fs::path& b) { return a.string() < b.string(); });
  return files;
}

// The content of a file. If it cannot be read, adds a line to `text` and returns nothing.
std::optional<std::string> content_of(const fs::path& file, std::string& text) {
  try {
    return read_file(file, {});
  } catch (const Error& error) {
    text += fmt::format("[!] Failed to read {}\n", error.what());
    return std::nullopt;
  }
}

}  // namespace

std::string gpu_log_line(const GpuLogRow& row) {
  using namespace std::chrono;
  const auto ms = duration_cast<milliseconds>(row.time.time_since_epoch()).count();
  const auto seconds = static_cast<time_t>(ms / 1000);
  std::tm local{};
  localtime_r(&seconds, &local);
  return fmt::format("{:04}/{:02}/{:02} {:02}:{:02}:{:02}.{:03}, {}, {}, {}, {}\n", local.tm_year + 1900,
                     local.tm_mon + 1, local.tm_mday, local.tm_hour, local.tm_min, local.tm_sec, ms % 1000, row.index,
                     row.name, row.used_mib, row.total_mib);
}

std::string cpu_log_header() {
  return fmt::format("# {:12} {:^12} {:^12} {:12}\n", "Elapsed time", "CPU (%)", "Real (MB)", "Virtual (MB)");
}

std::string cpu_log_line(const CpuLogRow& row) {
  return fmt::format("{:12.3f} {:12.3f} {:12.3f} {:12.3f}\n", row.elapsed_s, row.cpu_percent, row.real_mb,
                     row.virtual_mb);
}

double as_logged(double value) {
  return round_decimals(value, 3);
}

GpuLogStatistics read_gpu_log(std::string_view text) {
  GpuLogStatistics log;
  take_line(text);
  while (!text.empty()) {
    const std::string_view line = trimmed(take_line(text));
    if (line.empty()) continue;
    const std::vector<std::string_view> cells = cells_of(line);
    constexpr size_t kColumns = 5, kIndex = 1, kUsed = 3;
    const auto index = cells.size() == kColumns ? number_of<int64_t>(cells[kIndex]) : std::nullopt;
    const auto used = index ? number_of<double>(cells[kUsed]) : std::nullopt;
    if (used) {
      log.by_gpu[*index].add(*used);
    } else {
      ++log.num_unreadable;
    }
  }
  return log;
}

CpuLogStatistics read_cpu_log(std::string_view text) {
  CpuLogStatistics log;
  while (!text.empty()) {
    const std::string_view line = take_line(text);
    const std::vector<std::string_view> words = words_of(line.substr(0, line.find('#')));
    if (words.empty()) continue;
    constexpr size_t kReal = 2;
    const auto real = words.size() > kReal ? number_of<double>(words[kReal]) : std::nullopt;
    if (real) {
      log.real_mb.add(*real);
    } else {
      ++log.num_unreadable;
    }
  }
  return log;
}

MemoryAnalysis analyse_gpu_logs(const fs::path& folder) {
  MemoryAnalysis analysis;
  std::string& text = analysis.text;
  if (!fs::is_directory(folder)) {
    text = fmt::format("[!] GPU log directory not found: {}\n", folder.string());
    return analysis;
  }
  const std::vector<fs::path> files = logs_in(folder, "gpu_memory", "gpu_memory_log", ".csv", true);
  if (files.empty()) {
    text = fmt::format("[!] No GPU logs found in {}\n", folder.string());
    return analysis;
  }
  text = "\nGPU Memory Usage\n";
  for (const fs::path& file : files) {
    const auto content = content_of(file, text);
    if (!content) continue;
    const GpuLogStatistics log = read_gpu_log(*content);
    if (log.by_gpu.empty()) text += fmt::format("[!] Failed to read {}: it has no samples\n", file.string());
    for (const auto& [index, used] : log.by_gpu) {
      text += fmt::format("[{} - GPU {}] Peak = {:.0f} MiB, Avg = {:.2f} MiB, Mode = {} MiB\n", file.stem().string(),
                          index, used.peak(), used.mean(), modes_text(used));
      analysis.found = true;
    }
    text += note_of_unreadable(file, log.num_unreadable);
  }
  return analysis;
}

MemoryAnalysis analyse_cpu_logs(const fs::path& folder) {
  MemoryAnalysis analysis;
  std::string& text = analysis.text;
  const std::vector<fs::path> files = logs_in(folder, "cpu_memory", "cpu_memory_log", ".txt", false);
  if (files.empty()) {
    text = fmt::format("[!] CPU log not found: {}\n", (folder / "cpu_memory_log.txt").string());
    return analysis;
  }
  for (const fs::path& file : files) {
    const auto content = content_of(file, text);
    if (!content) continue;
    const CpuLogStatistics log = read_cpu_log(*content);
    if (log.real_mb.count() == 0) {
      text += fmt::format("[!] Failed to read {}: it has no samples\n", file.string());
    } else {
      text +=
          files.size() == 1 ? "\nCPU Memory Usage\n" : fmt::format("\nCPU Memory Usage ({})\n", file.stem().string());
      text += fmt::format("   Peak =    {:.0f} MB\n   Average = {:.2f} MB\n   Mode =    {} MB\n", log.real_mb.peak(),
                          log.real_mb.mean(), modes_text(log.real_mb));
      analysis.found = true;
    }
    text += note_of_unreadable(file, log.num_unreadable);
  }
  return analysis;
}

}  // namespace tessera
