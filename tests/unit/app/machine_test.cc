#include "tessera/app/machine.h"
#include "tessera/base/host_resources.h"

#include <gtest/gtest.h>

#include <fstream>

#include "../store/store_test_util.h"

namespace tessera {
namespace {

// A temporary folder takes the place of the root folder. Tests put the files of control groups there.
class Machine : public testing::Test {
 protected:
  void put(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories((folder_ / path).parent_path());
    std::ofstream(folder_ / path) << text << "\n";
  }
  ControlGroupLimits limits() const { return control_group_limits(folder_.path()); }

  TemporaryFolder folder_;
};

TEST_F(Machine, HasNoLimitsWithoutControlGroups) {
  EXPECT_FALSE(limits().memory_bytes);
  EXPECT_FALSE(limits().cores);
}

// The limits of all groups on the path apply to a process, so the lowest of them counts. "max" means no limit.
TEST_F(Machine, TakesTheLeastOfItsControlGroups) {
  put("proc/self/cgroup", "0::/slurm/job_7/step_0");
  put("sys/fs/cgroup/slurm/job_7/step_0/memory.max", "max");
  put("sys/fs/cgroup/slurm/job_7/memory.max", "5000000");
  put("sys/fs/cgroup/slurm/memory.max", "9000000");
  put("sys/fs/cgroup/slurm/job_7/step_0/cpu.max", "max 100000");
  put("sys/fs/cgroup/slurm/job_7/cpu.max", "250000 100000");
  EXPECT_EQ(limits().memory_bytes, 5000000);
  EXPECT_EQ(limits().cores, 2.5);
}

// In version 1 of control groups, each controller (memory, cpu) has its own folder. 9223372036854771712 and -1 mean no
// limit.
TEST_F(Machine, KnowsTheFirstVersionOfControlGroups) {
  put("proc/self/cgroup", "11:memory:/slurm/uid_1/job_7\n4:cpu,cpuacct:/slurm/uid_1/job_7\n1:name=systemd:/user");
  put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712");
  put("sys/fs/cgroup/memory/slurm/uid_1/job_7/memory.limit_in_bytes", "4000000");
  put("sys/fs/cgroup/cpu/slurm/uid_1/job_7/cpu.cfs_quota_us", "-1");
  put("sys/fs/cgroup/cpu/slurm/uid_1/job_7/cpu.cfs_period_us", "100000");
  put("sys/fs/cgroup/cpu/slurm/uid_1/cpu.cfs_quota_us", "150000");
  put("sys/fs/cgroup/cpu/slurm/uid_1/cpu.cfs_period_us", "100000");
  EXPECT_EQ(limits().memory_bytes, 4000000);
  EXPECT_EQ(limits().cores, 1.5);
}

// Inside a container with version 1, the files of the container's control group are directly in the folder of the
// controller (sys/fs/cgroup/memory). But /proc/self/cgroup contains the path that the group has outside the container.
TEST_F(Machine, KnowsAContainersControlGroup) {
  put("proc/self/cgroup", "11:memory:/docker/0123456789");
  put("sys/fs/cgroup/memory/memory.limit_in_bytes", "3000000");
  EXPECT_EQ(limits().memory_bytes, 3000000);
}

}  // namespace
}  // namespace tessera
