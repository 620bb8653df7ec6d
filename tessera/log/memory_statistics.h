// The peak, the mean and the modes (most frequent values) of samples of memory.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "tessera/base/record.h"

namespace tessera {

class MemoryStatistics {
 public:
  void add(double value);

  int64_t count() const { return count_; }
  double peak() const { return counts_.empty() ? 0 : counts_.rbegin()->first; }
  double mean() const { return count_ ? static_cast<double>(sum_ / static_cast<long double>(count_)) : 0; }
  // All values that occur most often, in ascending order.
  std::vector<double> modes() const;

 private:
  std::map<double, int64_t> counts_;
  long double sum_ = 0;
  int64_t count_ = 0;
};

// memory_record() returns {"peak_UNIT": …, "average_UNIT": …, "mode_UNIT": […]}. If more than kMostModes modes exist,
// the record has only the lowest kMostModes of them.
inline constexpr int kMostModes = 16;
Record memory_record(const MemoryStatistics& statistics, const std::string& unit);

}  // namespace tessera
