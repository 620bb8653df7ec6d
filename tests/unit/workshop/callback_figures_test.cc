#include "tessera/workshop/callback_figures.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <random>

namespace tessera {
namespace {

GpuSample sample_of(double used_mib, double utilization) {
  GpuSample sample;
  sample.memory_bytes = used_mib * (1 << 20);
  sample.utilization_percent = utilization;
  return sample;
}

TEST(UtilizationFigures, AreMeansOverRanksAndSteps) {
  std::mt19937 random(3);
  UtilizationFigures all;
  std::vector<double> utilization;
  double held = 0, used = 0;
  // The ranks have different numbers of steps, so the mean over all samples is not the mean of the ranks' means.
  for (int rank = 0; rank < 3; ++rank) {
    UtilizationFigures mine;
    for (int step = 0; step < 5 + rank; ++step) {
      const auto mib = static_cast<int64_t>(random() % 1000);
      utilization.push_back(static_cast<double>(random() % 101));
      mine.add(mib << 20, sample_of(static_cast<double>(mib + 500), utilization.back()));
      held += static_cast<double>(mib);
      used += static_cast<double>(mib + 500);
    }
    all.add_text(mine.to_text());
  }
  const auto n = static_cast<double>(utilization.size());
  double mean = 0, variance = 0;
  for (const double x : utilization) mean += x / n;
  for (const double x : utilization) variance += (x - mean) * (x - mean) / n;
  const Record record = all.record();
  EXPECT_DOUBLE_EQ(record["avg_mem_alloc_MB"], held / n);
  EXPECT_DOUBLE_EQ(record["avg_mem_reserved_MB"], held / n);
  EXPECT_DOUBLE_EQ(record["avg_mem_total_MB"], used / n);
  EXPECT_NEAR(record["avg_gpu_util_%"], mean, 1e-9);
  EXPECT_NEAR(record["std_gpu_util_%"], std::sqrt(variance), 1e-9);
}

TEST(UtilizationFigures, WithoutAGpuHaveTheLedgerOnly) {
  UtilizationFigures figures;
  EXPECT_TRUE(figures.record().empty());
  figures.add(3 << 20, {});
  EXPECT_EQ(to_json(figures.record()), R"({"avg_mem_alloc_MB": 3.0, "avg_mem_reserved_MB": 3.0})");
}

TEST(SpeedFigures, CountStepsBetweenLogs) {
  SpeedFigures speed(100);
  EXPECT_TRUE(speed.log(101).empty());
  EXPECT_TRUE(speed.means().empty());
  speed.add(8);
  speed.add(6);
  EXPECT_EQ(to_json(speed.log(104)), R"({"train/steps_per_second": 0.5, "train/samples_per_second": 3.5})");
  speed.add(8);
  EXPECT_EQ(to_json(speed.log(106)), R"({"train/steps_per_second": 0.5, "train/samples_per_second": 4.0})");
  EXPECT_EQ(to_json(speed.means()),
            R"({"train/steps_per_second_mean": 0.5, "train/samples_per_second_mean": 3.6666666666666665})");
}

}  // namespace
}  // namespace tessera
