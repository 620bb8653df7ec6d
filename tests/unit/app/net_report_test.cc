// Tests the output of nettest and doctor, and the verdicts and exit codes that follow from their results.
#include "tessera/app/net_report.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "tessera/app/cluster_report.h"
#include "tessera/app/preflight.h"

namespace tessera {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

NetResult result_of(double busbw) {
  NetResult result;
  result.message = {.num_elems = 1 << 20, .count = 1 << 20, .bytes = 4 << 20};
  result.seconds = 0.00123456;
  result.algbw = busbw / 2;
  result.busbw = busbw;
  return result;
}

TEST(NetReport, RowsHaveTheColumnsOfNcclTests) {
  EXPECT_EQ(net_row(result_of(5), DType::f32),
            "     4194304       1048576     float     sum      -1   1234.6    2.50    5.00      0");
  NetResult broadcast = result_of(123.456);
  broadcast.collective = NetCollective::broadcast;
  broadcast.wrong = 3;
  EXPECT_EQ(net_row(broadcast, DType::bf16),
            "     4194304       1048576  bfloat16    none       0   1234.6   61.73  123.46      3");
}

TEST(NetReport, TheLastLineHasTheFormatOfNcclTests) {
  EXPECT_EQ(net_footer(5.25, 0), "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 5.25");
  EXPECT_THAT(net_footer(5.25, 4), HasSubstr(": 4 FAILED\n"));
}

TEST(NetReport, WrongDataIsWorseThanSlowData) {
  EXPECT_EQ(verdict_of(5, 0, 5, "--min-busbw").code, ExitCode::kDone);
  EXPECT_EQ(verdict_of(0, 0, 0, "--min-busbw").code, ExitCode::kDone);
  const NetVerdict slow = verdict_of(4.9, 0, 5, "--min-busbw");
  EXPECT_TRUE(slow.code == ExitCode::kCommunication && slow.too_slow);
  EXPECT_THAT(slow.error, HasSubstr("4.9 GB/s is below --min-busbw 5"));
  const NetVerdict wrong = verdict_of(4.9, 1, 5, "--min-busbw");
  EXPECT_TRUE(wrong.code == ExitCode::kCommunication && !wrong.too_slow);
  EXPECT_THAT(wrong.error, HasSubstr("1 element of the received data is wrong"));
}

// With --workshop-exit-codes, only failures at run time (1, 4 and 5) become 44.
TEST(NetReport, WorkshopExitCodes) {
  Settings settings;
  EXPECT_EQ(with_workshop_codes(settings, 5), 5);
  settings.workshop_exit_codes = true;
  for (const int code : {1, 4, 5}) EXPECT_EQ(with_workshop_codes(settings, code), 44);
  for (const int code : {0, 2, 46, 44, 75, 137}) EXPECT_EQ(with_workshop_codes(settings, code), code);
}

TEST(NetReport, ListsOfRanks) {
  EXPECT_EQ(rank_list({3}), "rank 3");
  EXPECT_EQ(rank_list({2, 3, 4}), "ranks 2-4");
  EXPECT_EQ(rank_list({0, 2}), "ranks 0,2");
}

TEST(NetReport, NamesTheSlowestPairAndUnit) {
  const NetRanks ranks{.hosts = {"a", "a", "b", "b", "c", "c"}, .nodes = {0, 0, 1, 1, 2, 2}, .library = "MPI"};
  const auto units = unit_names(ranks, true);
  EXPECT_THAT(units, ElementsAre("node 0 (a)", "node 1 (b)", "node 2 (c)"));
  EXPECT_EQ(unit_names(ranks, false)[3], "rank 3 (b)");
  const std::vector<NetPairResult> pairs{{0, 1, result_of(3)}, {0, 2, result_of(9)}, {1, 2, result_of(4)}};
  EXPECT_EQ(slowest_lines(pairs, units),
            "# Slowest pair         : node 0 (a) and node 1 (b), 3 GB/s\n"
            "# Slowest on average   : node 1 (b), mean of its pairs 3.5 GB/s");
}

// 1024 bytes is the smallest size, even if the memory is less.
TEST(Preflight, SizesAreHalvedUntilTheyFit) {
  EXPECT_EQ(fitting_size(1 << 20, 1 << 20), 1 << 20);
  EXPECT_EQ(fitting_size(1 << 20, (1 << 18) + 5), 1 << 18);
  EXPECT_EQ(fitting_size(1 << 20, 0), 1024);
}

// The facts that doctor collects from one rank.
Record facts(const std::string& host, int node) {
  return {{"host", host},
          {"node", node},
          {"cores_allowed", 8},
          {"memory_bytes", int64_t{1} << 36},
          {"versions",
           {{"program", "tessera 1"},
            {"program_checksum", "aa"},
            {"mpi", "Open MPI 4.1.4"},
            {"nccl", "2.28.3"},
            {"driver", "580.1"},
            {"cuda", "13.0"},
            {"cpu", "Xeon"}}},
          {"gpus", {{{"name", "H200"}, {"pci_address", "0"}}, {{"name", "H200"}, {"pci_address", "1"}}}},
          {"environment", {{"NCCL_ALGO", "Tree"}}}};
}

std::vector<Record> four_ranks() {
  return {facts("a", 0), facts("a", 0), facts("b", 1), facts("b", 1)};
}

TEST(ClusterReport, EqualNodesHaveNoWarnings) {
  const Record summary = cluster_summary(four_ranks(), std::vector<ClockOffset>(4), {});
  EXPECT_EQ(summary["warnings"], Record::array()) << summary;
  EXPECT_EQ(summary["problems"], Record::array()) << summary;
  ASSERT_EQ(summary["hosts"].size(), 2u);
  EXPECT_EQ(summary["hosts"][1]["ranks"], Record({2, 3}));
  EXPECT_EQ(summary["hosts"][0]["gpus"].size(), 2u);  // both ranks of host a see the same two GPUs
  EXPECT_THAT(cluster_text(summary, Terminal{}), HasSubstr("no differences between the ranks"));
}

TEST(ClusterReport, DifferencesAreNamedWithHostAndRanks) {
  auto ranks = four_ranks();
  for (const size_t r : {2u, 3u}) ranks[r]["versions"]["driver"] = "570.9";
  ranks[3]["environment"]["NCCL_ALGO"] = "Ring";
  ranks[1]["environment"]["UCX_TLS"] = "rc";
  ranks[1]["versions"]["program_checksum"] = "bb";
  std::vector<ClockOffset> clocks(4);
  clocks[2] = {-3, 0.001};
  const Record summary = cluster_summary(ranks, clocks, {{"/runs", "/runs", {"rank 2 on b: does not see it"}}});
  const std::string warnings = summary["warnings"].dump(), problems = summary["problems"].dump();
  EXPECT_THAT(warnings, HasSubstr("the GPU driver differs: 580.1 on a (ranks 0-1); 570.9 on b (ranks 2-3)"));
  EXPECT_THAT(warnings, HasSubstr("NCCL_ALGO differs: Tree on a, b (ranks 0-2); Ring on b (rank 3)"));
  EXPECT_THAT(warnings, HasSubstr("UCX_TLS differs: unset on a, b (ranks 0,2,3); rc on a (rank 1)"));
  EXPECT_THAT(warnings, HasSubstr("the clock of b is 3.0 s behind the clock of a"));
  EXPECT_THAT(problems, HasSubstr("the program's file differs"));
  EXPECT_THAT(problems, HasSubstr("/runs is not shared by all ranks: rank 2 on b: does not see it"));
  EXPECT_EQ(summary["problems"].size(), 2u);
}

TEST(ClusterReport, GpusThatAreMissingOrTooFewAreNamed) {
  auto ranks = four_ranks();
  for (const size_t r : {2u, 3u}) ranks[r]["gpus"] = Record::array();
  EXPECT_THAT(cluster_summary(ranks, std::vector<ClockOffset>(4), {})["warnings"].dump(),
              HasSubstr("GPUs differ: a has H200, H200, but b has no GPU"));
  ranks = four_ranks();
  ranks[2]["gpus"][1]["slowed_by"] = "power brake";
  ranks[2]["gpus"][0]["uncorrected_errors"] = 2;
  const Record sick = cluster_summary(ranks, std::vector<ClockOffset>(4), {})["warnings"];
  EXPECT_EQ(sick, Record({"b: H200 0: 2 uncorrected memory errors (ECC) since the driver was loaded",
                          "b: H200 1: the clocks are reduced because of power brake"}));
  ranks = four_ranks();
  for (Record& rank : ranks) rank["gpus"].erase(1);
  EXPECT_THAT(cluster_summary(ranks, std::vector<ClockOffset>(4), {})["warnings"].dump(),
              HasSubstr("a has 2 ranks, but they see 1 GPU."));
}

}  // namespace
}  // namespace tessera
