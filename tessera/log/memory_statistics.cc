#include "tessera/log/memory_statistics.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace tessera {

void MemoryStatistics::add(double value) {
  ++counts_[value];
  sum_ += value;
  ++count_;
}

std::vector<double> MemoryStatistics::modes() const {
  int64_t most = 0;
  for (const auto& [value, count] : counts_) most = std::max(most, count);
  std::vector<double> modes;
  for (const auto& [value, count] : counts_) {
    if (count == most) modes.push_back(value);
  }
  return modes;
}

Record memory_record(const MemoryStatistics& statistics, const std::string& unit) {
  std::vector<double> modes = statistics.modes();
  if (modes.size() > kMostModes) modes.resize(kMostModes);
  return {{"peak_" + unit, statistics.peak()}, {"average_" + unit, statistics.mean()}, {"mode_" + unit, modes}};
}

}  // namespace tessera
