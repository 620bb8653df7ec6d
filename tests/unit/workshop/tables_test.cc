#include "tessera/workshop/tables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "../report/made_runs.h"

namespace tessera {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

using WorkshopTables = MadeRunsTest;

TEST_F(WorkshopTables, EveryExperimentHasACell) {
  std::set<std::string> experiments;
  for (const WorkshopTable& table : workshop_tables()) {
    for (const auto& experiment : table.experiments) experiments.insert(experiment.name);
    for (const auto& figure : table.figures) {
      const bool known = find_figure(figure.figure) || figure.figure == "num_layers" || figure.figure == "batch_size" ||
                         figure.figure == "weak_efficiency";
      EXPECT_TRUE(known) << figure.figure;
    }
  }
  EXPECT_EQ(workshop_tables().size(), 12u);
  // The workshop has 39 experiments. The tables omit five of them, which use a single GPU: ZeRO stages 0 to 3 without
  // offload, and pinned memory.
  EXPECT_EQ(experiments.size(), 34u);
}

TEST_F(WorkshopTables, NameWhatIsMissing) {
  made_.run("x", {.experiment = "deepspeed/deepspeed-multi-gpu/2_gpus", .ranks = 2});
  made_.run("y", {.experiment = "deepspeed/deepspeed-multi-gpu/4_gpus", .ranks = 4, .samples = 200});
  const std::vector<Sheet> sheets = workshop_sheets(read(), Scaling::automatic);
  const Sheet& sheet = sheets[2];
  EXPECT_EQ(sheet.name, "deepspeed-multi-gpu");
  EXPECT_THAT(texts(sheet.rows[0]), ElementsAre("Train Samples/sec", "10.0", "20.0", "-"));
  EXPECT_THAT(sheet.remarks, Contains("No run for: deepspeed/deepspeed-multi-gpu/8_gpus."));
  EXPECT_THAT(sheet.columns[2].notes,
              ElementsAre(HasSubstr("The data differs from deepspeed/deepspeed-multi-gpu/2_gpus")));
  EXPECT_THAT(sheet.rows[2][1].notes, ElementsAre(HasSubstr("ledger_peak_bytes.total")));  // the peak GPU memory
  EXPECT_EQ(sheet.rows[3][1].text, "-");  // the average needs memory logs
}

TEST_F(WorkshopTables, MergeOnlyEqualRunsOfAnExperiment) {
  const std::string name = "deepspeed/baseline";
  made_.run("x", {.experiment = name, .runtime_s = 10, .settings = {{"seed", "1"}}});
  made_.run("y", {.experiment = name, .runtime_s = 12, .settings = {{"seed", "2"}}});
  made_.run("z", {.experiment = name, .runtime_s = 99, .settings = {{"lr", "9"}}});
  const Sheet sheet = workshop_sheets(read(), Scaling::automatic)[0];
  EXPECT_EQ(sheet.rows[4][3].values, std::vector<double>{(10.0 + 100.0 / 12) / 2});
  EXPECT_THAT(testing::PrintToString(sheet.columns[3].notes), HasSubstr("are not shown: "));
}

TEST_F(WorkshopTables, WeakScalingBothWays) {
  for (const int n : {2, 4}) {
    const std::string name = "fsdp/custom_model/weak_scaling/" + std::to_string(n) + "_gpus";
    made_.run(name,
              {.experiment = name, .runtime_s = 5.0 * n, .ranks = n, .settings = {{"num_layers", std::to_string(n)}}});
  }
  const Sheet sheet = workshop_sheets(read(), Scaling::automatic)[11];
  EXPECT_EQ(sheet.rows[1][9].text, "50.0");    // T1/TN: the runtimes are 10 s and 20 s
  EXPECT_EQ(sheet.rows[1][10].text, "200.0");  // the workshop's TN/T1
  EXPECT_EQ(sheet.rows[1][6].text, "n/a");     // GPU utilisation does not apply to CPU ranks
}

}  // namespace
}  // namespace tessera
