#include "tessera/train/gpu_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "tessera/base/text.h"

namespace tessera {

Record gpu_record(const GpuUsage& usage) {
  Record record = Record::object();
  const auto put = [&](const char* key, const Statistic& statistic, bool integral) {
    if (statistic.count == 0) return;
    const auto value = [&](double x) { return integral ? Record(std::llround(x)) : Record(x); };
    record[key] = Record{{"mean", value(statistic.mean())}, {"peak", value(statistic.peak)}};
  };
  put("memory_bytes", usage.memory_bytes, true);
  put("process_memory_bytes", usage.process_memory_bytes, true);
  put("utilization_percent", usage.utilization_percent, false);
  put("power_w", usage.power_w, false);
  put("sm_clock_mhz", usage.sm_clock_mhz, false);
  return record;
}

Record highest_of(const std::vector<Record>& gpu_records) {
  Record highest = Record::object();
  for (const Record& record : gpu_records) {
    for (const auto& [key, numbers] : record.items()) {
      for (const auto& [name, number] : numbers.items()) {
        Record& known = highest[key][name];
        if (known.is_null() || known < number) known = number;
      }
    }
  }
  return highest;
}

std::string gpu_line(const Record& gpu) {
  const auto number = [&](const char* key, const char* name) -> std::optional<double> {
    const auto numbers = gpu.find(key);
    return numbers != gpu.end() ? std::optional(numbers->at(name).get<double>()) : std::nullopt;
  };
  std::string text;
  const auto add = [&](const char* separator, const std::string& part) {
    text += (text.empty() ? "" : separator) + part;
  };
  const auto bytes_text = [](double bytes) { return format_bytes(static_cast<int64_t>(bytes)); };
  if (const auto peak = number("memory_bytes", "peak")) add("", "peak " + bytes_text(*peak));
  if (const auto peak = number("process_memory_bytes", "peak")) add(", ", bytes_text(*peak) + " by this program");
  const char* separator = "; on average ";
  const auto add_mean = [&](const char* key, const char* unit) {
    const auto mean = number(key, "mean");
    if (!mean) return;
    add(separator, fmt::format("{:.0f} {}", *mean, unit));
    separator = ", ";
  };
  add_mean("utilization_percent", "% busy");
  add_mean("power_w", "W");
  add_mean("sm_clock_mhz", "MHz");
  return text;
}

}  // namespace tessera
