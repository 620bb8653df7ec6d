#include "tessera/train/memory_log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "tessera/base/error.h"
#include "tessera/base/read_file.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

class MemoryLogs : public testing::Test {
 protected:
  MemoryLogs() : folder_(fs::path(testing::TempDir()) / ("memory-log-" + std::to_string(getpid()))) {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    device_.add(Category::parameters, 64);
    device_.enter(Phase::step);
    host_.add(Category::optimizer, 128);
  }
  ~MemoryLogs() override { fs::remove_all(folder_); }

  MemoryLogNames names(int rank = 0) const { return {.folder = folder_, .rank = rank, .host = "n1"}; }
  MemorySources sources(bool with_processes = true) const {
    MemorySources sources{.device = &device_, .host = &host_};
    if (with_processes) sources.tree.emplace(std::vector{getpid()});
    return sources;
  }
  std::string text_of(const std::string& name) const { return read_file(folder_ / name, {}); }
  std::set<std::string> files() const {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_)) names.insert(entry.path().filename().string());
    return names;
  }

  const fs::path folder_;
  Ledger device_, host_;
};

TEST_F(MemoryLogs, OneSampleIsOneLineOfEachFile) {
  MemoryLogFiles files(names(), sources());
  files.sample(0, std::chrono::system_clock::time_point(std::chrono::milliseconds(1500)), 0);
  device_.add(Category::activations, 1000);
  files.sample(2.5, std::chrono::system_clock::time_point(std::chrono::milliseconds(4000)), 7);
  const std::string cpu = text_of("cpu_memory_log.txt");
  EXPECT_EQ(std::ranges::count(cpu, '\n'), 3);  // the header and two samples
  EXPECT_NE(cpu.find("\n       2.500 "), cpu.npos) << cpu;
  const std::string ledger = text_of("ledger-rank-0.jsonl");
  const size_t second = ledger.find('\n') + 1;
  const Record first = record_from_json(ledger.substr(0, second), "here");
  EXPECT_EQ(first["time"], 1.5);
  EXPECT_EQ(first["phase"], "step");
  EXPECT_EQ(to_json(first["device"]), R"({"parameters": 64})");
  EXPECT_EQ(to_json(first["host"]), R"({"optimizer": 128})");
  EXPECT_GT(first["resident_bytes"], 0);
  const Record last = record_from_json(ledger.substr(second), "here");
  EXPECT_EQ(last["step"], 7);
  EXPECT_EQ(to_json(last["device"]), R"({"parameters": 64, "activations": 1000})");
  const Record statistics = files.statistics();
  EXPECT_FALSE(statistics.contains("gpu"));
  EXPECT_GE(statistics["cpu"]["peak_mb"], statistics["cpu"]["average_mb"]);
}

TEST_F(MemoryLogs, GpusAreInTheFormOfNvidiaSmi) {
  MemorySources gpu_sources = sources();
  const auto nvml = std::make_shared<const Nvml>(TESSERA_STUBS "/nvml/libnvidia-ml.so.1");
  const Nvml::Gpu gpu = nvml->gpu_at("0000:1B:00.0");
  gpu_sources.nvml = nvml;
  gpu_sources.own_gpu = gpu;
  gpu_sources.node_gpus = {{gpu, nvml->identity(gpu)}};
  MemoryLogFiles log(names(), std::move(gpu_sources));
  log.sample(0, std::chrono::system_clock::time_point(std::chrono::milliseconds(1500)), 0);
  const std::string csv = text_of("gpu_memory_log.csv");
  const std::string row = ":01.500, 3, NVIDIA Stub, 0, 0\n";  // the stub reports 15 of 100 bytes, rounded to 0 of 0 MiB
  EXPECT_EQ(csv.find("timestamp, index, name, memory.used [MiB], memory.total [MiB]\n"), 0u);
  EXPECT_TRUE(csv.ends_with(row)) << csv;
  EXPECT_EQ(std::ranges::count(csv, '\n'), 2);
  EXPECT_EQ(to_json(log.statistics()["gpu"]),
            R"([{"host": "n1", "index": 3, "peak_mib": 0.0, "average_mib": 0.0, "mode_mib": [0.0]}])");
  EXPECT_NE(text_of("ledger-rank-0.jsonl").find(R"("gpu_utilization_percent": 93)"), std::string::npos);
}

TEST_F(MemoryLogs, OtherRanksLogTheirLedgersOnly) {
  MemoryLogFiles log(names(3), sources(false));
  log.sample(0, {}, 0);
  EXPECT_EQ(files(), std::set<std::string>{"ledger-rank-3.jsonl"});
  EXPECT_TRUE(log.statistics().empty());
}

TEST_F(MemoryLogs, EachStartHasItsOwnFiles) {
  for (int start = 0; start < 3; ++start) {
    MemoryLogFiles log(names(), sources());
    log.sample(start, {}, start);
  }
  EXPECT_EQ(files(), (std::set<std::string>{"cpu_memory_log.txt", "cpu_memory_log.1.txt", "cpu_memory_log.2.txt",
                                            "ledger-rank-0.jsonl", "ledger-rank-0.1.jsonl", "ledger-rank-0.2.jsonl"}));
  EXPECT_NE(text_of("cpu_memory_log.1.txt").find("\n       0.000"), std::string::npos) << "the oldest log has number 1";
  EXPECT_NE(text_of("cpu_memory_log.txt").find("\n       2.000"), std::string::npos);
}

TEST_F(MemoryLogs, FilesOfSeveralNodesHaveTheirHost) {
  MemoryLogNames named = names();
  named.has_other_nodes = true;
  const MemoryLogFiles log(named, sources());
  EXPECT_TRUE(files().contains("cpu_memory_log_n1.txt"));
}

TEST_F(MemoryLogs, StatisticsOfRanksAreJoined) {
  const auto cpu = [](double peak) { return Record{{"peak_mb", peak}, {"average_mb", 1.0}, {"mode_mb", {1.0}}}; };
  const Record gpu{{"host", "a"}, {"index", 0}}, other{{"host", "b"}, {"index", 1}};
  const Record all = combined_memory_statistics(
      {{{"gpu", {gpu}}, {"cpu", cpu(3)}}, Record::object(), {{"gpu", {other}}, {"cpu", cpu(5)}}});
  ASSERT_EQ(all["gpu"].size(), 2u);
  EXPECT_EQ(all["gpu"][1]["host"], "b");
  EXPECT_EQ(all["cpu"]["peak_mb"], 5);
  EXPECT_TRUE(combined_memory_statistics({Record::object()}).empty());
}

TEST_F(MemoryLogs, SamplesUntilItIsFinished) {
  double now_s = 100;
  MemoryLog log(
      names(), sources(), 3600, [](const std::string& line) { ADD_FAILURE() << line; }, [&] { return now_s; });
  log.note_step(4);
  const Record statistics = log.finish();
  EXPECT_TRUE(statistics.contains("cpu"));
  EXPECT_EQ(std::ranges::count(text_of("cpu_memory_log.txt"), '\n'), 3) << "the header, the first and the last sample";
  EXPECT_NE(text_of("ledger-rank-0.jsonl").find(R"("step": 4)"), std::string::npos);
}

TEST_F(MemoryLogs, AFullDiskEndsTheLogWithOneWarning) {
  std::vector<std::string> warnings;
  {
    MemoryLog log(
        names(), sources(), 0.001, [&](const std::string& line) { warnings.push_back(line); },
        // Stands in for the clock. The first call gives the start time, and each sample makes one call. The third call
        // is therefore the second sample's. It fails as if the disk were full.
        [&, calls = 0]() mutable -> double {
          if (++calls == 3) throw RunError("cpu_memory_log.txt", "No space left on device");
          return calls;
        });
    while (std::ranges::count(text_of("cpu_memory_log.txt"), '\n') < 2) usleep(1000);
  }
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_EQ(warnings[0].find("warning: the memory log ends here, and the run continues: "), 0u) << warnings[0];
  EXPECT_EQ(std::ranges::count(text_of("cpu_memory_log.txt"), '\n'), 2);
}

TEST_F(MemoryLogs, AFolderThatIsNotWritableIsAnError) {
  MemoryLogNames missing = names();
  missing.folder /= "missing";
  EXPECT_THROW(MemoryLogFiles(missing, sources()), RunError);
}

}  // namespace
}  // namespace tessera
