#include "tessera/train/gpu_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "tessera/report/text.h"

namespace tessera {

Record gpu_record(const GpuUsage& usage) {
  Record record;
  const auto put = [&](const char* key, const Statistic& statistic, bool integral) {
    if (statistic.count == 0) return;
    const auto value = [&](double x) { return integral ? Value(std::llround(x)) : Value(x); };
    record.set(key, Record{{"mean", value(statistic.mean())}, {"peak", value(statistic.peak)}});
  };
  put("memory_bytes", usage.memory_bytes, true);
  put("process_memory_bytes", usage.process_memory_bytes, true);
  put("utilization_percent", usage.utilization_percent, false);
  put("power_w", usage.power_w, false);
  put("sm_clock_mhz", usage.sm_clock_mhz, false);
  return record;
}

static bool is_less(const Value& a, const Value& b) {
  if (a.get_if<int64_t>() && b.get_if<int64_t>()) return *a.get_if<int64_t>() < *b.get_if<int64_t>();
  return a.get_if<double>() && b.get_if<double>() && *a.get_if<double>() < *b.get_if<double>();
}

Record highest_of(const std::vector<Record>& gpu_records) {
  Record highest;
  for (const Record& record : gpu_records) {
    for (const auto& [key, value] : record.fields()) {
      const Value* known = highest.find(key);
      Record numbers = known ? *known->get_if<Record>() : Record();
      for (const auto& [name, number] : value.get_if<Record>()->fields()) {
        const Value* before = numbers.find(name);
        if (!before || is_less(*before, number)) numbers.set(name, number);
      }
      highest.set(key, numbers);
    }
  }
  return highest;
}

std::string gpu_line(const Record& gpu) {
  const auto find = [&](const char* key, const char* name) {
    const Value* numbers = gpu.find(key);
    return numbers ? numbers->get_if<Record>()->find(name) : nullptr;
  };
  std::string text;
  const auto add = [&](const char* separator, const std::string& part) {
    text += (text.empty() ? "" : separator) + part;
  };
  if (const Value* peak = find("memory_bytes", "peak")) add("", format_bytes(*peak->get_if<int64_t>()) + " at most");
  if (const Value* peak = find("process_memory_bytes", "peak")) {
    add(", ", format_bytes(*peak->get_if<int64_t>()) + " by this program");
  }
  const char* separator = "; on average ";
  const auto add_mean = [&](const char* key, const char* unit) {
    const Value* mean = find(key, "mean");
    if (!mean) return;
    add(separator, fmt::format("{:.0f} {}", *mean->get_if<double>(), unit));
    separator = ", ";
  };
  add_mean("utilization_percent", "% busy");
  add_mean("power_w", "W");
  add_mean("sm_clock_mhz", "MHz");
  return text;
}

}  // namespace tessera
