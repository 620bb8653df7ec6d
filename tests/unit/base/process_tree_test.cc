#include "tessera/base/process_tree.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <string>

namespace tessera {
namespace {

namespace fs = std::filesystem;

// The tests read a folder whose files have the names and the format of the files in /proc.
class Processes : public testing::Test {
 protected:
  Processes() : proc_(fs::path(testing::TempDir()) / ("proc-" + std::to_string(getpid()))) { fs::remove_all(proc_); }
  ~Processes() override { fs::remove_all(proc_); }

  void write(int pid, const std::string& name, const std::string& text) {
    const fs::path path = proc_ / std::to_string(pid) / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  // Writes the files of one process. `start`: its start time. `ticks`: its processor time. Both are in clock ticks.
  // Half of the processor time is system time. Virtual memory is 10 times `resident_pages`. `children`: the ids of the
  // child processes that the process's main thread started.
  void put(int pid, int start, int ticks, int resident_pages, const std::string& children = "", char state = 'S') {
    std::string line = std::to_string(pid) + " (a ) name) " + state;
    for (int field = 4; field < 14; ++field) line += " 7";
    line += " " + std::to_string(ticks / 2) + " " + std::to_string(ticks - ticks / 2);
    for (int field = 16; field < 22; ++field) line += " 7";
    write(pid, "stat", line + " " + std::to_string(start) + " 99 99\n");
    write(pid, "statm", std::to_string(10 * resident_pages) + " " + std::to_string(resident_pages) + " 1 1 0 1 0\n");
    write(pid, "task/" + std::to_string(pid) + "/children", children);
  }

  const fs::path proc_;
  const int64_t page_bytes_ = sysconf(_SC_PAGESIZE);
  const int ticks_per_s_ = static_cast<int>(sysconf(_SC_CLK_TCK));
};

TEST_F(Processes, SumsTheMemoryOfAllDescendants) {
  put(10, 1, 0, 3, "11 12 ");
  put(11, 2, 0, 4, "13 ");
  put(12, 2, 0, 5);
  put(13, 3, 0, 6);
  put(14, 3, 0, 1000);                   // not a descendant
  write(11, "task/99/children", "15 ");  // a child that another thread started
  put(15, 4, 0, 7);
  const ProcessTree::Sample sample = ProcessTree({10}, proc_).sample(0);
  EXPECT_EQ(sample.num_processes, 5);
  EXPECT_EQ(sample.resident_bytes, 25 * page_bytes_);
  EXPECT_EQ(sample.virtual_bytes, 250 * page_bytes_);
  EXPECT_EQ(sample.cpu_percent, 0);
  EXPECT_EQ(resident_bytes(13, proc_), 6 * page_bytes_);
}

TEST_F(Processes, BusyTimeCountsSinceThePreviousSample) {
  put(10, 1, 5 * ticks_per_s_, 1, "11 ");
  put(11, 1, 0, 1);
  ProcessTree tree({10}, proc_);
  tree.sample(100);
  put(10, 1, 8 * ticks_per_s_, 1, "11 12 ");
  put(11, 1, 1 * ticks_per_s_, 1);
  put(12, 9, 50 * ticks_per_s_, 1);  // a new process: only the time after its first sample counts
  EXPECT_DOUBLE_EQ(tree.sample(102).cpu_percent, 150 + 50);
  put(12, 9, 51 * ticks_per_s_, 1);
  EXPECT_DOUBLE_EQ(tree.sample(104).cpu_percent, 50);
}

TEST_F(Processes, EndedProcessesDoNotCountAndOrphansDo) {
  put(10, 1, 0, 1, "11 ");
  put(11, 1, 0, 2, "12 ");
  put(12, 1, 0, 4);
  ProcessTree tree({10}, proc_);
  EXPECT_EQ(tree.sample(0).num_processes, 3);
  fs::remove_all(proc_ / "11");
  put(10, 1, 0, 1);
  EXPECT_EQ(tree.sample(1).resident_bytes, 5 * page_bytes_);
  put(12, 77, 0, 400);  // another process got the same id
  EXPECT_EQ(tree.sample(2).resident_bytes, page_bytes_);
  put(10, 1, 0, 1, "", 'Z');
  EXPECT_EQ(tree.sample(3).num_processes, 0);
}

TEST(ProcessTree, OfThisProcessHasItsMemory) {
  const ProcessTree::Sample sample = ProcessTree({getpid()}).sample(0);
  EXPECT_GE(sample.num_processes, 1);
  EXPECT_GT(sample.resident_bytes, 0);
  EXPECT_GE(sample.virtual_bytes, sample.resident_bytes);
}

}  // namespace
}  // namespace tessera
