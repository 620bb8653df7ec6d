#include "tessera/train/gpu_record.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace tessera {
namespace {

// Two samples: the given bytes and watts, then twice as many. The mean is therefore 1.5 times the given values.
GpuUsage usage_of(double bytes, double watts) {
  GpuUsage usage;
  for (const double factor : {1.0, 2.0}) {
    usage.add({.memory_bytes = factor * bytes,
               .memory_total_bytes = {},
               .process_memory_bytes = {},
               .utilization_percent = 50,
               .power_w = factor * watts,
               .sm_clock_mhz = {}});
  }
  return usage;
}

TEST(GpuRecord, HasMeansAndPeaksOfWhatIsKnown) {
  // The mean of the bytes is 3000000001.5. Bytes are rounded to integers.
  EXPECT_EQ(to_json(gpu_record(usage_of(2e9 + 1, 100))),
            R"({"memory_bytes": {"mean": 3000000002, "peak": 4000000002}, )"
            R"("utilization_percent": {"mean": 50.0, "peak": 50.0}, "power_w": {"mean": 150.0, "peak": 200.0}})");
  EXPECT_TRUE(gpu_record({}).empty());
}

TEST(GpuRecord, EachNumberIsTheHighestOfTheRanks) {
  const Record one = gpu_record(usage_of(2e9, 300)), other = gpu_record(usage_of(3e9, 100));
  EXPECT_EQ(to_json(highest_of({one, {}, other})),
            R"({"memory_bytes": {"mean": 4500000000, "peak": 6000000000}, )"
            R"("utilization_percent": {"mean": 50.0, "peak": 50.0}, "power_w": {"mean": 450.0, "peak": 600.0}})");
  EXPECT_TRUE(highest_of({{}, {}}).empty());
}

TEST(GpuRecord, IsALineOfTheEndTable) {
  EXPECT_EQ(gpu_line(gpu_record(usage_of(0x1p30, 300))), "peak 2.00 GiB; on average 50 % busy, 450 W");
}

}  // namespace
}  // namespace tessera
