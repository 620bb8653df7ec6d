#include "tessera/log/memory_logs.h"

#include <gtest/gtest.h>

#include <unistd.h>
#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

namespace tessera {
namespace {

namespace fs = std::filesystem;

TEST(MemoryLogs, HaveTheFormOfNvidiaSmi) {
  setenv("TZ", "UTC", 1);
  tzset();
  EXPECT_STREQ(kGpuLogHeader, "timestamp, index, name, memory.used [MiB], memory.total [MiB]\n");
  const GpuLogRow row{.time = std::chrono::system_clock::time_point(std::chrono::milliseconds(1738317600007)),
                      .index = 2,
                      .name = "NVIDIA A100-SXM4-80GB",
                      .used_mib = 1234,
                      .total_mib = 81920};
  EXPECT_EQ(gpu_log_line(row), "2025/01/31 10:00:00.007, 2, NVIDIA A100-SXM4-80GB, 1234, 81920\n");
}

TEST(MemoryLogs, HaveTheFormOfPsrecord) {
  EXPECT_EQ(cpu_log_header(), "# Elapsed time   CPU (%)     Real (MB)   Virtual (MB)\n");
  EXPECT_EQ(cpu_log_line({.elapsed_s = 5.0051, .cpu_percent = 198.7, .real_mb = 2145.12549, .virtual_mb = 12345678.5}),
            "       5.005      198.700     2145.125 12345678.500\n");
  EXPECT_EQ(as_logged(2145.12549), 2145.125);
}

TEST(MemoryStatistics, EqualTheSortedValues) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    std::vector<double> values(1 + random() % 30);
    MemoryStatistics statistics;
    for (double& value : values) {
      // There are only 6 different values, so a round may have several modes. The sums of these values are exact.
      value = static_cast<double>(random() % 6) / 4;
      statistics.add(value);
    }
    std::ranges::sort(values);
    std::vector<double> modes;
    ptrdiff_t most = 0;
    for (const double value : values) most = std::max(most, std::ranges::count(values, value));
    double sum = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      sum += values[i];
      if (std::ranges::count(values, values[i]) == most && (modes.empty() || modes.back() != values[i])) {
        modes.push_back(values[i]);
      }
    }
    EXPECT_EQ(statistics.peak(), values.back());
    EXPECT_EQ(statistics.mean(), sum / static_cast<double>(values.size()));
    EXPECT_EQ(statistics.modes(), modes);
  }
}

TEST(MemoryStatistics, BecomeARecordWithFewModes) {
  MemoryStatistics statistics;
  for (int i = 100; i > 0; --i) statistics.add(i);
  const Record record = memory_record(statistics, "mib");
  EXPECT_EQ(record["peak_mib"], 100);
  EXPECT_EQ(record["average_mib"], 50.5);
  EXPECT_EQ(record["mode_mib"].size(), size_t{kMostModes});
  EXPECT_EQ(record["mode_mib"][0], 1);
  EXPECT_EQ(MemoryStatistics().peak(), 0);
  EXPECT_EQ(MemoryStatistics().mean(), 0);
}

TEST(MemoryLogs, AreReadByGpu) {
  // Three rows are unreadable: the first has no number for the used memory, the second has only four columns, and the
  // third has no number for the index.
  const std::string text = std::string(kGpuLogHeader) +
                           "2025/01/31 10:00:00.000, 1, A, 7, 9\r\n"
                           "2025/01/31 10:00:00.000, 0, A, 5, 9\r\n\r\n"
                           "2025/01/31 10:00:05.000, 1, A, [N/A], 9\n"
                           "2025/01/31 10:00:05.000, 1, A, 8\n"
                           "2025/01/31 10:00:05.000, x, A, 8, 9\n"
                           "2025/01/31 10:00:05.000, 1, A, 8, 9";
  const GpuLogStatistics log = read_gpu_log(text);
  ASSERT_EQ(log.by_gpu.size(), 2u);
  EXPECT_EQ(log.by_gpu.at(0).mean(), 5);
  EXPECT_EQ(log.by_gpu.at(1).mean(), 7.5);
  EXPECT_EQ(log.num_unreadable, 3);
  EXPECT_TRUE(read_gpu_log("").by_gpu.empty());
  EXPECT_TRUE(read_gpu_log("1, 0, A, 5, 9").by_gpu.empty()) << "the first line is read as the header";
}

TEST(MemoryLogs, OfTheHostAreTheThirdColumn) {
  // Two rows are unreadable: the first has no third column before the comment, and the second has no number there.
  const std::string text = cpu_log_header() + cpu_log_line({0, 0, 10.5, 99}) + cpu_log_line({5, 99, 20.5, 99}) +
                           "1 2 # 3\n1 2 many 4\n\t10 0 30 99 # a comment\n# the end";
  const CpuLogStatistics log = read_cpu_log(text);
  EXPECT_EQ(log.real_mb.count(), 3);
  EXPECT_EQ(log.real_mb.mean(), 61.0 / 3);
  EXPECT_EQ(log.num_unreadable, 2);
}

TEST(MemoryLogs, ReadersTakeAnyBytes) {
  using namespace std::string_literals;
  std::mt19937 random(11);
  const std::string alphabet = "0123456789.,-# \t\r\nenaif[]/:\xff\x00"s;
  for (int round = 0; round < 3000; ++round) {
    std::string text;
    const size_t length = random() % 200;
    while (text.size() < length) text += alphabet[random() % alphabet.size()];
    const GpuLogStatistics gpu = read_gpu_log(text);
    const CpuLogStatistics cpu = read_cpu_log(text);
    const auto lines = std::ranges::count(text, '\n') + 1;
    int64_t rows = gpu.num_unreadable;
    for (const auto& [index, statistics] : gpu.by_gpu) rows += statistics.count();
    EXPECT_LE(rows, lines);
    EXPECT_LE(cpu.real_mb.count() + cpu.num_unreadable, lines);
  }
}

TEST(MemoryLogs, AreFoundInTheFoldersOfARunAndOfAJob) {
  const fs::path folder = fs::path(testing::TempDir()) / ("logs-" + std::to_string(getpid()));
  fs::remove_all(folder);
  EXPECT_EQ(analyse_gpu_logs(folder).text, "[!] GPU log directory not found: " + folder.string() + "\n");
  EXPECT_FALSE(analyse_cpu_logs(folder).found);
  fs::create_directories(folder / "gpu_memory");
  EXPECT_EQ(analyse_gpu_logs(folder).text, "[!] No GPU logs found in " + folder.string() + "\n");
  const auto write = [&](const char* name, const std::string& text) { std::ofstream(folder / name) << text; };
  write("gpu_memory/any.csv", std::string(kGpuLogHeader) + "t, 3, A, 4, 9\nt, 3, A, 4, 9\nt, 3, A, 7, 9\n");
  write("gpu_memory_log_n1.csv", std::string(kGpuLogHeader) + "t, 0, A, 2, 9\nt, 0, A, 1, 9\n");
  write("results.csv", "t, 0, A, 2, 9\nt, 0, A, 1, 9\n");
  EXPECT_EQ(analyse_gpu_logs(folder).text,
            "\nGPU Memory Usage\n"
            "[any - GPU 3] Peak = 7 MiB, Avg = 5.00 MiB, Mode = 4 MiB\n"
            "[gpu_memory_log_n1 - GPU 0] Peak = 2 MiB, Avg = 1.50 MiB, Mode = 1, 2 MiB\n");
  write("cpu_memory_log.txt", "0 0 2.5 9\n1 1 2.5 9\n");
  EXPECT_EQ(analyse_cpu_logs(folder).text,
            "\nCPU Memory Usage\n   Peak =    2 MB\n   Average = 2.50 MB\n   Mode =    2 MB\n");
  fs::remove_all(folder);
}

}  // namespace
}  // namespace tessera
