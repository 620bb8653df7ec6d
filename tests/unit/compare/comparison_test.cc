#include "tessera/compare/comparison.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "made_runs.h"
#include "tessera/base/error.h"
#include "tessera/compare/workshop_tables.h"

namespace tessera {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

std::vector<std::string> texts(const std::vector<Cell>& row) {
  std::vector<std::string> all;
  for (const Cell& cell : row) all.push_back(cell.text);
  return all;
}

std::vector<std::string> names(const Sheet& sheet) {
  std::vector<std::string> all;
  for (const SheetColumn& column : sheet.columns) all.push_back(column.name);
  return all;
}

class ComparisonTest : public testing::Test {
 protected:
  const RunSet& read() {
    set_ = read_runs({made_.path()});
    EXPECT_THAT(set_.problems, IsEmpty());
    return set_;
  }
  MadeRuns made_;
  RunSet set_;
};

TEST_F(ComparisonTest, RowsAreTheSettingsThatDiffer) {
  made_.run("a", {.runtime_s = 10, .ranks = 1, .settings = {{"strategy", "\"zero1\""}}});
  made_.run("b", {.runtime_s = 5, .ranks = 4, .settings = {{"strategy", "\"zero2\""}}});
  const Comparison comparison = compare_runs(read(), {});
  EXPECT_THAT(comparison.labels, ElementsAre("zero1", "zero2"));
  EXPECT_THAT(comparison.differing, ElementsAre("strategy"));
  EXPECT_THAT(names(comparison.sheet),
              ElementsAre("run", "train_loss", "eval_loss", "perplexity", "samples_per_second", "runtime", "cpu_peak",
                          "speedup", "efficiency", "memory_saved", "runtime_change"));
  EXPECT_THAT(texts(comparison.sheet.rows[1]),
              ElementsAre("zero2", "1.2500", "1.5000", "4.482", "20.0", "5.00", "64", "2.00", "50.0", "0.0", "-50.0"));
}

TEST_F(ComparisonTest, MarksTheBestRun) {
  const auto best = [&](const ComparisonOptions& options = {}) {
    const Comparison comparison = compare_runs(read(), options);
    if (!comparison.best) return std::string("one row");
    EXPECT_EQ(comparison.sheet.best_row, comparison.best->group);
    const std::string label = comparison.best->group ? comparison.labels[*comparison.best->group] : "none";
    std::string text = label + ": " + comparison.best->reason;
    EXPECT_THAT(comparison.sheet.remarks, Contains("Best: " + text + "."));
    return text;
  };
  made_.run("a", {.settings = {{"lr", "1"}}, .more = {{"eval_loss", 1.5}}});
  EXPECT_EQ(best(), "one row");
  made_.run("b", {.settings = {{"lr", "2"}}, .more = {{"eval_loss", 1.25}}});
  made_.run("c", {.settings = {{"lr", "3"}}, .more = {{"eval_loss", nullptr}}});
  EXPECT_EQ(best({.sort = "-lr"}), "2: the lowest eval loss, 1.2500");
  made_.run("d", {.runtime_s = 1, .settings = {{"lr", "4"}}, .more = {{"eval_loss", 1.25000001}}});
  EXPECT_EQ(best(), "4: the lowest eval loss, 1.2500, and the fastest of 2 rows with this value");
  for (const char* name : {"a", "b", "c", "d"}) {
    const int64_t f1 = name[0] == 'a';
    made_.run(name, {.settings = {{"lr", std::to_string(name[0])}, {"metric_for_best_model", "\"f1\""}},
                     .more = {{"eval_loss", 2.0 + name[0]}, {"exact_match", 0}, {"f1", f1}}});
  }
  EXPECT_EQ(best(), "97: the highest F1, 1.000");
  EXPECT_THAT(names(compare_runs(read(), {}).sheet), Not(Contains("perplexity")));  // the runs have scores
  made_.run("e", {.settings = {{"eval_dataset", "\"other.json\""}}});
  EXPECT_THAT(best(), AllOf(StartsWith("none: the rows have different evaluation data (eval_dataset: "),
                            EndsWith("other.json in e)")));
}

TEST_F(ComparisonTest, AHugeLossHasNoPerplexity) {
  made_.run("a", {.more = {{"eval_loss", 63830.5}}});
  made_.run("b", {.settings = {{"lr", "2"}}, .more = {{"eval_loss", 12.5}}});
  const Sheet sheet = compare_runs(read(), {.columns = {"perplexity"}}).sheet;
  EXPECT_EQ(sheet.rows[0][1].text, "-");
  EXPECT_THAT(sheet.rows[0][1].notes, ElementsAre("The eval loss is too large for a perplexity"));
  EXPECT_EQ(sheet.rows[1][1].text, "2.68e+05");
}

TEST_F(ComparisonTest, RepeatedRunsBecomeTheirMedian) {
  for (const auto& [seed, runtime] : {std::pair{1, 10.0}, {2, 30.0}, {3, 20.0}}) {
    made_.run(std::to_string(seed), {.runtime_s = runtime, .settings = {{"seed", std::to_string(seed)}}});
  }
  made_.run("other", {.runtime_s = 5, .settings = {{"lr", "0.1"}}});
  const Comparison comparison = compare_runs(read(), {.columns = {"runtime"}});
  ASSERT_EQ(comparison.groups.size(), 2u);
  EXPECT_EQ(comparison.sheet.rows[0][1].text, "20.00 (10.00 to 30.00)");
  EXPECT_THAT(comparison.sheet.rows[0][0].notes, ElementsAre(HasSubstr("Median of 3 runs")));
  EXPECT_THAT(comparison.sheet.rows[0][0].notes, ElementsAre(HasSubstr("(seeds 1, 2, 3)")));
}

TEST_F(ComparisonTest, UnequalRunsAreMarkedAndNeverMerged) {
  made_.run("a", {});
  made_.run("b", {.samples = 200, .settings = {{"seed", "1"}}});
  made_.run("c", {.settings = {{"seed", "2"}}, .more = {{"version", "9"}}});
  made_.run("d", {.settings = {{"seed", "3"}}, .more = {{"num_parameters", 5}}});
  made_.run("e", {.settings = {{"seed", "4"}}, .more = {{"machine", Record{{"cpus", std::vector<std::string>{"Y"}}}}}});
  const Comparison comparison = compare_runs(read(), {});
  ASSERT_EQ(comparison.groups.size(), 5u);
  const auto note = [&](size_t row) { return testing::PrintToString(comparison.sheet.rows[row][0].notes); };
  EXPECT_EQ(comparison.sheet.rows[0][0].notes.size(), 0u);
  EXPECT_THAT(note(1), HasSubstr("The data differs from"));
  EXPECT_THAT(note(2), HasSubstr("The version of Tessera differs from"));
  EXPECT_THAT(note(3), HasSubstr("The model differs from"));
  EXPECT_THAT(note(4), HasSubstr("The machine differs from"));
}

TEST_F(ComparisonTest, RowsColumnsSortAndBaseline) {
  made_.run("a", {.runtime_s = 10, .settings = {{"strategy", "\"zero1\""}, {"lr", "1"}}});
  made_.run("b", {.runtime_s = 5, .settings = {{"strategy", "\"zero2\""}, {"lr", "2"}}});
  made_.run("c", {.runtime_s = 20, .settings = {{"strategy", "\"zero2\""}, {"lr", "3"}}});
  const ComparisonOptions options{.rows = {"strategy"},
                                  .columns = {"runtime", "speedup", "lr", "ledger_peak_bytes.total"},
                                  .baseline = "zero1",
                                  .sort = "-runtime"};
  const Comparison comparison = compare_runs(read(), options);
  EXPECT_THAT(texts(comparison.sheet.rows[0]), ElementsAre("zero2", "20.00", "0.50", "3", "1048576"));
  // Two rows have the value zero2 for `strategy`. The note names the setting that differs between them.
  EXPECT_THAT(comparison.sheet.rows[0][0].notes, ElementsAre(HasSubstr("lr")));
  EXPECT_THAT(texts(comparison.sheet.rows[1]), ElementsAre("zero1", "10.00", "1.00", "1", "1048576"));
  EXPECT_THAT(comparison.sheet.remarks, ElementsAre("Baseline: zero1.", HasSubstr("Best: zero2 (b): ")));
  for (const char* baseline : {"a", "strategy=zero1"}) {
    EXPECT_EQ(compare_runs(read(), {.rows = {"strategy"}, .baseline = baseline}).baseline, 0u);
  }
  // Two rows have the value zero2, so "zero2" does not name one baseline.
  EXPECT_THROW(compare_runs(read(), {.rows = {"strategy"}, .baseline = "zero2"}), UsageError);
  EXPECT_THROW(compare_runs(read(), {.baseline = "nothing"}), UsageError);
  EXPECT_THROW(compare_runs(read(), {.columns = {"los"}}), UsageError);
  EXPECT_THROW(compare_runs(read(), {.rows = {"los"}}), UsageError);
  EXPECT_THROW(compare_runs(read(), {.sort = "-los"}), UsageError);
}

TEST_F(ComparisonTest, ListsOfWords) {
  EXPECT_THAT(split_list(""), IsEmpty());
  EXPECT_THAT(split_list(" a, b c ,,d"), ElementsAre("a", "b c", "d"));
}

TEST_F(ComparisonTest, EveryExperimentOfTheWorkshopHasACell) {
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

TEST_F(ComparisonTest, WorkshopTablesNameWhatIsMissing) {
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

TEST_F(ComparisonTest, WorkshopTablesMergeOnlyEqualRunsOfAnExperiment) {
  const std::string name = "deepspeed/baseline";
  made_.run("x", {.experiment = name, .runtime_s = 10, .settings = {{"seed", "1"}}});
  made_.run("y", {.experiment = name, .runtime_s = 12, .settings = {{"seed", "2"}}});
  made_.run("z", {.experiment = name, .runtime_s = 99, .settings = {{"lr", "9"}}});
  const Sheet sheet = workshop_sheets(read(), Scaling::automatic)[0];
  EXPECT_EQ(sheet.rows[4][3].values, std::vector<double>{(10.0 + 100.0 / 12) / 2});
  EXPECT_THAT(testing::PrintToString(sheet.columns[3].notes), HasSubstr("are not shown: "));
}

TEST_F(ComparisonTest, WeakScalingOfTheWorkshopBothWays) {
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
