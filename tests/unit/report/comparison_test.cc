#include "tessera/report/comparison.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "made_runs.h"
#include "tessera/base/error.h"

namespace tessera {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

std::vector<std::string> names(const Sheet& sheet) {
  std::vector<std::string> all;
  for (const SheetColumn& column : sheet.columns) all.push_back(column.name);
  return all;
}

using ComparisonTest = MadeRunsTest;

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

TEST_F(ComparisonTest, ShowsThePlanBesideTheMeasurement) {
  made_.run("old", {.settings = {{"lr", "1"}}});
  EXPECT_FALSE(planned_sheet(compare_runs(read(), {})));
  made_.run("memory", {.settings = {{"lr", "2"}}, .more = {{"planned", Record{{"device_peak_bytes", 2 << 20}}}}});
  auto sheet = planned_sheet(compare_runs(read(), {}));
  ASSERT_TRUE(sheet);
  EXPECT_THAT(names(*sheet), ElementsAre("run", "planned_device", "booked_memory"));
  made_.run("time", {.settings = {{"lr", "3"}},
                     .more = {{"planned", Record{{"device_peak_bytes", 3 << 20}, {"step_s", 0.04}}},
                              {"measured", Record{{"steps", 7}, {"step_s", 0.05}}}}});
  sheet = planned_sheet(compare_runs(read(), {}));
  EXPECT_THAT(names(*sheet),
              ElementsAre("run", "planned_device", "booked_memory", "planned_step", "step_time", "step_ratio"));
  EXPECT_THAT(texts(sheet->rows[0]), ElementsAre("2", "2.00", "1.00", "-", "-", "-"));
  EXPECT_THAT(texts(sheet->rows[1]), ElementsAre("1", "-", "1.00", "-", "-", "-"));
  EXPECT_THAT(texts(sheet->rows[2]), ElementsAre("3", "3.00", "1.00", "0.04", "0.05", "1.25"));
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

}  // namespace
}  // namespace tessera
