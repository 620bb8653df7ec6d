// Tests the memory over a step: it is the memory of the plan.
#include "tessera/engine/step_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <vector>

#include "../device/machine.h"
#include "small_model.h"
#include "tessera/engine/step_time.h"

namespace tessera {
namespace {

int64_t sum_of(const StepMemory::Bytes& bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), int64_t{0});
}

struct Job {
  EngineOptions options;
  WorkBounds work;
  PlannedRank rank;
};

// Jobs of every kind of device, strategy, offload and checkpointing.
std::vector<Job> jobs() {
  constexpr Tier D = Tier::device, H = Tier::host, F = Tier::file;
  constexpr Offload kOffloads[] = {{D, D, D}, {H, H, H}, {F, D, D}, {H, D, D}};
  std::vector<Job> jobs;
  for (int turn = 0; turn < 16; ++turn) {
    Job job;
    job.options.dtype = turn % 2 ? DType::bf16 : DType::f32;
    job.options.sharding.offload = kOffloads[turn % 4];
    job.options.sharding.file_folder = testing::TempDir();
    job.options.recomputation.blocks = turn % 3 == 0 ? 0 : turn % 3 == 1 ? 1 : kAllBlocks;
    job.work.training = {200 + 8 * turn, 1 + turn % 3, 90};
    if (turn % 2) job.work.evaluation = {900, 3, 900};
    job.work.micro_batches = 1 + turn % 3;
    job.rank.device = turn % 8 < 4 ? DeviceKind::cuda : DeviceKind::cpu;
    if (turn % 5 == 0) {
      job.rank.world_size = job.rank.ranks_per_node = 2;
      job.options.sharding.strategy = ShardingStrategy::full_shard;
    }
    jobs.push_back(job);
  }
  return jobs;
}

TEST(StepMemory, ItsPeakIsThePlans) {
  const Machine machine = round_machine();
  const ModelConfig config = small_config("llama");
  const HeldBeside copy = [](Engine& engine, Communicator&) {
    return std::make_shared<Buffer>(engine.host().allocate(12345, Category::staging));
  };
  int turn = 0;
  for (const Job& job : jobs()) {
    const HeldBeside beside = ++turn % 2 ? copy : HeldBeside();
    const Plan plan = plan_run(config, job.options, job.work, job.rank, beside);
    for (const Machine* of : {static_cast<const Machine*>(nullptr), &machine}) {
      SCOPED_TRACE(turn);
      const StepMemory memory = step_memory(config, job.options, job.work, job.rank, beside, of);
      EXPECT_EQ(memory.timed, of != nullptr);
      int64_t device = 0, host = 0, stack = 0;
      double last = 0;
      for (const StepMemory::Point& point : memory.points) {
        device = std::max(device, sum_of(point.device));
        host = std::max(host, sum_of(point.host));
        stack = std::max(stack, point.stack_bytes);
        EXPECT_LE(point.stack_bytes, point.device[static_cast<size_t>(Category::activations)]);
        EXPECT_GE(point.at, last);
        last = point.at;
      }
      EXPECT_EQ(device, plan.device.peak_total(Phase::step));
      EXPECT_EQ(host, plan.host.peak_total(Phase::step));
      const int64_t planned = plan.device.peak(Phase::step, Category::activations);
      if (job.work.evaluation.num_tokens == 0 && !of) {
        EXPECT_EQ(stack, planned);
      }
      EXPECT_GT(stack, planned / 8);
      EXPECT_LE(last, memory.end);
      EXPECT_GT(memory.end, 0);
      EXPECT_EQ(memory.points[0].stack_bytes % Device::kAlignment, 0);
    }
  }
}

TEST(StepMemory, ThePartsAreInOrder) {
  const Machine machine = round_machine();
  for (Job job : jobs()) {
    const StepMemory memory = step_memory(small_config("bloom"), job.options, job.work, job.rank, {}, &machine);
    EXPECT_EQ(memory.micro_batches, std::min<int64_t>(job.work.micro_batches, 2));
    ASSERT_EQ(std::ssize(memory.parts), 2 * memory.micro_batches + 1);
    double last = 0;
    for (size_t i = 0; i < memory.parts.size(); ++i) {
      const bool ends = i + 1 == memory.parts.size();
      EXPECT_EQ(memory.parts[i].part, ends ? StepPart::update : i % 2 ? StepPart::backward : StepPart::forward);
      EXPECT_GE(memory.parts[i].at, last);
      last = memory.parts[i].at;
    }
    EXPECT_EQ(memory.parts[0].at, 0);
    EXPECT_LE(last, memory.end);
  }
}

// A step with the same micro-batches takes the same time (step_time()).
TEST(StepMemory, ItTakesTheTimeOfAStep) {
  const Machine machine = round_machine();
  Job job = jobs()[0];
  job.work.micro_batches = 1;
  job.work.training = {4096, 8, 4096};
  job.rank.world_size = 1;
  const double step_s = step_time(small_config("llama"), job.options, job.work, job.rank, machine).step_s;
  const StepMemory memory = step_memory(small_config("llama"), job.options, job.work, job.rank, {}, &machine);
  EXPECT_NEAR(memory.end, step_s, 0.3 * step_s);  // the largest micro-batch has other sequences than a typical one
}

}  // namespace
}  // namespace tessera
