#include "tessera/report/figures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <set>

namespace tessera {
namespace {

using testing::ElementsAre;

RunFolder run_with(double runtime_s, int64_t ranks, int64_t samples, int64_t parameters = 100) {
  RunFolder run;
  run.summary = {{"schema", 1},
                 {"train_runtime", runtime_s},
                 {"train_samples_per_second", static_cast<double>(samples) / runtime_s},
                 {"world_size", ranks},
                 {"num_samples", samples},
                 {"num_parameters", parameters},
                 {"device", "cpu"},
                 {"peak_memory_bytes", 512 << 20}};
  return run;
}

double derived(const char* name, const RunFolder& run, const RunFolder& base, Scaling scaling = Scaling::automatic) {
  const RunGroup group{{&run}}, baseline{{&base}};
  const Measure measure = measure_of(*find_figure(name), group, &baseline, scaling).measure;
  return measure.values.empty() ? std::nan("") : measure.values[0];
}

TEST(Figures, MedianAndModes) {
  EXPECT_TRUE(std::isnan(median({})));
  EXPECT_EQ(median({3}), 3);
  EXPECT_EQ(median({5, 1, 3}), 3);
  EXPECT_EQ(median({5, 1, 3, 2}), 2.5);
  EXPECT_THAT(modes({}), ElementsAre());
  EXPECT_THAT(modes({2177, 1, 2145, 2177, 2145, 3}), ElementsAre(2145, 2177));
  EXPECT_THAT(modes({std::nan(""), 4}), ElementsAre(4));
}

TEST(Figures, StrongScaling) {
  const RunFolder one = run_with(100, 1, 500), four = run_with(40, 4, 500);
  EXPECT_DOUBLE_EQ(derived("speedup", four, one), 2.5);
  EXPECT_DOUBLE_EQ(derived("efficiency", four, one), 62.5);
  EXPECT_DOUBLE_EQ(derived("efficiency", four, run_with(80, 2, 500)), 100);  // a baseline of two ranks
  EXPECT_DOUBLE_EQ(derived("efficiency", four, one, Scaling::workshop), 40);
  EXPECT_DOUBLE_EQ(derived("inverse_efficiency", four, one), 40);
  EXPECT_DOUBLE_EQ(derived("runtime_change", four, one), -60);
}

TEST(Figures, WeakScaling) {
  const RunFolder one = run_with(100, 1, 500), four = run_with(125, 4, 2000);
  EXPECT_DOUBLE_EQ(derived("efficiency", four, one), 80);
  EXPECT_DOUBLE_EQ(derived("speedup", four, one), 3.2);  // the ratio of the samples per second: 16 / 5
  EXPECT_DOUBLE_EQ(derived("efficiency", four, one, Scaling::strong), 20);
}

TEST(Figures, WeakScalingByLayers) {
  RunFolder two = run_with(100, 2, 400, 1000), eight = run_with(200, 8, 400, 3000);
  two.settings["num_layers"] = "3";
  eight.settings["num_layers"] = "12";
  EXPECT_DOUBLE_EQ(derived("efficiency", eight, two), 50);
  eight.settings["num_layers"] = "9";
  // The runs now differ in their total work and in their work per rank, so neither definition of efficiency applies.
  EXPECT_TRUE(std::isnan(derived("efficiency", eight, two)));
}

TEST(Figures, NoEfficiencyOfOddRuns) {
  EXPECT_TRUE(std::isnan(derived("efficiency", run_with(0, 2, 5), run_with(1, 1, 5))));
  EXPECT_TRUE(std::isnan(derived("efficiency", run_with(1, 0, 5), run_with(1, 1, 5))));
  EXPECT_TRUE(std::isnan(derived("efficiency", run_with(1, 2, 0), run_with(1, 1, 0))));
}

TEST(Figures, MemorySavedIsOfTheSameKindOfMemory) {
  RunFolder base = run_with(1, 1, 5), run = run_with(1, 1, 5);
  run.summary["peak_memory_bytes"] = 384 << 20;
  EXPECT_DOUBLE_EQ(derived("memory_saved", run, base), 25);
  base.summary["device"] = "cuda";
  EXPECT_TRUE(std::isnan(derived("memory_saved", run, base)));
}

TEST(Figures, SourcesOfMemory) {
  RunFolder run = run_with(1, 1, 5);
  const Figure& peak = *find_figure("gpu_peak");
  EXPECT_TRUE(peak.of_run(run).values.empty());
  run.summary["ledger_peak_bytes"] = Record{{"total", 3 << 20}};
  EXPECT_THAT(peak.of_run(run).values, ElementsAre(3));
  EXPECT_NE(peak.of_run(run).note, "");
  const auto gpu = [](int64_t index, double mib) {
    return Record{{"index", index}, {"peak_mib", mib}, {"mode_mib", std::vector<double>{mib - 2, mib - 1}}};
  };
  run.summary["memory_log"] = Record{{"gpu", std::vector<Record>{gpu(0, 10), gpu(1, 30), gpu(2, 20)}}};
  EXPECT_THAT(peak.of_run(run).values, ElementsAre(30));  // the GPU with the highest value
  EXPECT_EQ(peak.of_run(run).note, "");
  EXPECT_THAT(find_figure("gpu_mode")->of_run(run).values, ElementsAre(28, 29));
}

TEST(Figures, RepeatedRunsHaveAMedianAndASpread) {
  const RunFolder a = run_with(10, 1, 5), b = run_with(30, 1, 5), c = run_with(11, 1, 5);
  const GroupMeasure measure = measure_of(*find_figure("runtime"), {{&a, &b, &c}}, nullptr, Scaling::automatic);
  EXPECT_THAT(measure.measure.values, ElementsAre(11));
  EXPECT_EQ(measure.low, 10);
  EXPECT_EQ(measure.high, 30);
}

TEST(Figures, NamesAreUnique) {
  std::vector<std::string> names;
  for (const Figure& figure : all_figures()) {
    names.push_back(figure.name);
    names.insert(names.end(), figure.aliases.begin(), figure.aliases.end());
    EXPECT_TRUE((figure.of_run != nullptr) != (figure.derived != nullptr)) << figure.name;
  }
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), names.size());
  EXPECT_EQ(find_figure("gpu-peak"), find_figure("gpu_peak"));
  EXPECT_EQ(find_figure("nothing"), nullptr);
}

}  // namespace
}  // namespace tessera
