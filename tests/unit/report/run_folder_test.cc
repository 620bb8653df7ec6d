#include "tessera/report/run_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "made_runs.h"
#include "tessera/base/text.h"
#include "tessera/report/comparison.h"
#include "tessera/report/html_page.h"
#include "tessera/workshop/tables.h"

namespace tessera {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<std::string> names_of(const RunSet& set) {
  std::vector<std::string> names;
  for (const RunFolder& run : set.runs) names.push_back(run.name);
  return names;
}

TEST(RunFolders, AreFoundBelowAFolderInTheOrderOfTheirNumbers) {
  MadeRuns made;
  for (const char* name : {"a/16_gpus", "a/2_gpus", "b/c/one", "2_gpus"}) made.run(name, {});
  made.write("a/notes.txt", "x");
  const RunSet set = read_runs({made.path()});
  EXPECT_THAT(set.problems, IsEmpty());
  ASSERT_EQ(set.runs.size(), 4u);
  EXPECT_THAT(names_of(set), testing::Contains(HasSubstr("a/16_gpus")));
  EXPECT_EQ(set.runs[0].path, made.path("2_gpus"));
  EXPECT_EQ(set.runs[1].path, made.path("a/2_gpus"));
  EXPECT_EQ(set.runs[2].path, made.path("a/16_gpus"));
  EXPECT_EQ(set.runs[0].settings.at("model"), "tiny");
  EXPECT_EQ(set.runs[0].train.size(), 10u);
  EXPECT_EQ(set.runs[0].evals.size(), 1u);
}

TEST(RunFolders, AreReadOnceAndWithoutCheckpointsAndEarlierRuns) {
  MadeRuns made;
  made.run("x", {});
  made.run("x/overwritten-run", {});
  const RunSet set = read_runs({made.path("x"), made.path("x/"), made.path()});
  EXPECT_THAT(names_of(set), ElementsAre("x"));
  EXPECT_THAT(set.problems, IsEmpty());
}

TEST(RunFolders, WhatCannotBeUsedIsReported) {
  MadeRuns made;
  made.run("good", {});
  made.run("half", {});
  std::filesystem::remove(made.path("half/summary.json"));
  made.run("cut", {});
  made.write("cut/summary.json", "{\"schema\": 1, \"train_lo");
  made.run("later", {.more = {{"schema", 2}}});
  made.write("other/summary.json", "{\"a\": 1}");
  made.run("odd", {});
  made.write("odd/metrics.jsonl",
             "{\"kind\": \"train\", \"step\": 1, \"loss\": null}\n{\"kind\": \"train\", \"loss\": NaN}\n"
             "{\"kind\": \"train\", \"step\": 3, \"loss\": null, \"num_targets\": 0}\n");
  std::filesystem::create_directories(made.path("empty"));
  const RunSet set = read_runs({made.path(), made.path("none"), made.path("empty"), made.path("good/summary.json")});
  EXPECT_THAT(names_of(set), ElementsAre("good", "odd"));
  const std::string problems = testing::PrintToString(set.problems);
  for (const char* text :
       {"half: has no summary.json: the run has not ended", "cut/summary.json", "later/summary.json: has schema 2",
        "other/summary.json: has no schema", "odd/metrics.jsonl:2", "1 loss is NaN or infinite", "none: no such folder",
        "summary.json: is not a folder", "other/summary.json"}) {
    EXPECT_THAT(problems, HasSubstr(text));
  }
  EXPECT_THAT(problems, testing::Not(HasSubstr("good:")));
}

TEST(RunFolders, SettingsAsTesseraWritesThem) {
  const auto settings = parse_resolved_config(
      "# Model\nmodel = \"a \\\"b\\\" # c\"   # flag\nlr = 5e-05  # default\n# deepspeed = \"x\"\nshuffle = true\nbad "
      "line\n = 3\n");
  EXPECT_EQ(settings.size(), 3u);
  EXPECT_EQ(settings.at("model"), "a \"b\" # c");
  EXPECT_EQ(settings.at("lr"), "5e-05");
  EXPECT_EQ(settings.at("shuffle"), "true");
}

TEST(RunFolders, MemoryLogs) {
  const auto gpus = parse_gpu_memory_log(
      "timestamp, index, name, memory.used [MiB], memory.total [MiB]\n"
      "2025/01/31 23:59:58.500, 0, NVIDIA, 10, 100\n2025/01/31 23:59:58.500, 1, NVIDIA, 11, 100\n"
      "2025/02/01 00:00:03.500, 0, NVIDIA, 30, 100\nhalf a li\n2025/02/01 00:00:03.500, 1, NVIDIA, [N/A], 100\n",
      "n1");
  ASSERT_EQ(gpus.size(), 2u);
  EXPECT_EQ(gpus[0].name, "GPU 0 of n1");
  EXPECT_THAT(gpus[0].seconds, ElementsAre(0, 5));
  EXPECT_THAT(gpus[0].mib, ElementsAre(10, 30));
  EXPECT_THAT(gpus[1].mib, ElementsAre(11));
  const auto cpu = parse_cpu_memory_log(
      "# Elapsed time   CPU (%)     Real (MB)   Virtual (MB)\n"
      "       0.000        0.000        2.500       100.0\n 5.0  99.0  7.0\n x\n",
      "n2");
  EXPECT_EQ(cpu.name, "CPU of n2");
  EXPECT_THAT(cpu.seconds, ElementsAre(0, 5));
  EXPECT_THAT(cpu.mib, ElementsAre(2.5, 7));
}

TEST(RunFolders, MemoryLogsOfTheLastStartAndOfAnotherFolder) {
  MadeRuns made;
  made.run("a", {});
  for (const char* name :
       {"cpu_memory_log.txt", "cpu_memory_log_n1.txt", "cpu_memory_log.1.txt", "cpu_memory_log_n1.2.txt"}) {
    made.write("a/memory/" + std::string(name), "0.0 0.0 5.0 9.0\n");
  }
  made.write("logs/b/gpu_memory_log_n1.csv", "2025/01/31 10:00:00.000, 3, NVIDIA, 10, 100\n");
  made.run("b", {.settings = {{"memory_log", "\"" + made.path("logs/b") + ":0.5\""}}});
  const RunSet set = read_runs({made.path("a"), made.path("b")});
  ASSERT_EQ(set.runs.size(), 2u);
  ASSERT_EQ(set.runs[0].memory.size(), 2u);
  EXPECT_EQ(set.runs[0].memory[0].name, "CPU");
  EXPECT_EQ(set.runs[0].memory[1].name, "CPU of n1");
  ASSERT_EQ(set.runs[1].memory.size(), 1u);
  EXPECT_EQ(set.runs[1].memory[0].name, "GPU 3 of n1");
}

// Damages the files of one of two run folders at random. read_runs() must return both runs, or one run and a
// problem. In both cases, the tables must be written in every format, and the HTML page must be complete.
TEST(RunFolders, RandomDamage) {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    MadeRuns made;
    made.run("a", {.experiment = "deepspeed/baseline"});
    made.run("b", {.experiment = "deepspeed/baseline", .ranks = 2});
    made.write("b/memory/gpu_memory_log.csv", "2025/01/31 10:00:00.000, 0, NVIDIA, 10, 100\n");
    made.write("b/memory/cpu_memory_log.txt", "1.0 2.0 3.0 4.0\n");
    for (const char* name : {"summary.json", "metrics.jsonl", "resolved-config.toml", "memory/gpu_memory_log.csv",
                             "memory/cpu_memory_log.txt"}) {
      std::ifstream in(made.path("b/" + std::string(name)), std::ios::binary);
      std::string text((std::istreambuf_iterator<char>(in)), {});
      const int kind = static_cast<int>(random() % 4);
      if (kind == 0) text.resize(random() % (text.size() + 1));
      for (int i = 0; kind == 1 && i < 8; ++i) text[random() % text.size()] = static_cast<char>(random());
      for (int i = 0; kind == 2 && i < 8; ++i) {  // changes only digits, so many of the files stay valid
        char& c = text[random() % text.size()];
        if (c >= '0' && c <= '9') c = "0179e-"[random() % 6];
      }
      made.write("b/" + std::string(name), text);
    }
    const RunSet set = read_runs({made.path()});
    ASSERT_GE(set.runs.size(), 1u);
    EXPECT_TRUE(set.runs.size() == 2 || !set.problems.empty());
    const Comparison comparison = compare_runs(set, {});
    std::vector<Sheet> sheets = workshop_sheets(set, Scaling::automatic);
    sheets.push_back(comparison.sheet);
    for (const Sheet& sheet : sheets) {
      EXPECT_NE(sheet_for_terminal(sheet, {}), "");
      EXPECT_NE(sheet_as_markdown(sheet), "");
      EXPECT_NE(sheet_as_csv(sheet), "");
      record_from_json(to_json(sheet_as_record(sheet)), "sheet");
    }
    EXPECT_THAT(html_page(set, comparison, sheets, "1"), HasSubstr("</html>"));
  }
}

}  // namespace
}  // namespace tessera
