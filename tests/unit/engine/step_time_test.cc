// Tests the simulated time of steps.
#include <gtest/gtest.h>

#include "../device/machine.h"
#include "small_model.h"
#include "tessera/engine/step_time.h"

namespace tessera {
namespace {

TEST(StepParts, TheirDifferencesAddUp) {
  StepParts parts;
  parts.enter(StepPart::forward, 10);
  const PartSeconds before = parts.until(12);
  parts.enter(StepPart::backward, 13);
  parts.enter(StepPart::update, 18);
  parts.enter(StepPart::forward, 19);
  EXPECT_EQ(parts.until(21) - before, (PartSeconds{3, 5, 1}));
}

// On a CPU, an engine measures the parts of its steps.
TEST(StepParts, AreMeasuredOnACpu) {
  ThreadPool pool(1);
  const auto device = make_cpu_device(pool), host = make_cpu_device(pool);
  const auto alone = make_self_communicator();
  Engine engine({*device, *host, *alone}, small_config("llama"), {});
  const auto batch = make_batch(4, {9, 5, 7});
  engine.prepare({{21, 3, batch.num_targets}, {}, {}, 0, 1});
  engine.states().initialize(1);
  const double begin = steady_seconds();
  const PartSeconds before = engine.parts().until(begin);
  engine.train_step({&batch, 1}, 1e-3);
  const double end = steady_seconds();
  const PartSeconds seconds = engine.parts().until(end) - before;
  for (const double part : seconds) EXPECT_GT(part, 0);
  EXPECT_NEAR(seconds[0] + seconds[1] + seconds[2], end - begin, 1e-6);
}

class StepTimeTest : public testing::Test {
 protected:
  StepTimeTest() {
    options_.dtype = DType::bf16;
    work_.training = {4096, 8, 4096};
    work_.evaluation = {4096, 8, 4096};
    rank_.device = DeviceKind::cuda;
  }
  StepTime time() const { return step_time(config_, options_, work_, rank_, machine_); }

  Machine machine_ = round_machine();
  ModelConfig config_ = small_config("llama");
  EngineOptions options_;
  WorkBounds work_;
  PlannedRank rank_;
};

TEST_F(StepTimeTest, AStepTakesTheTimeOfItsKernelsIfNothingWaits) {
  const StepTime t = time();
  double kernels = 0;
  for (const auto& [name, seconds] : t.kernel_s) kernels += seconds;
  EXPECT_NEAR(t.step_s, kernels, 0.02 * kernels);
  EXPECT_NEAR(t.step_s, t.part_s[0] + t.part_s[1] + t.part_s[2], 0.02 * t.step_s);
  EXPECT_GT(t.part_s[1], t.part_s[0]);
  EXPECT_LT(t.evaluation_s, t.part_s[0] + t.part_s[1]);
  EXPECT_GT(t.evaluation_s, 0);
}

// A GPU's batch is padded with a few tokens, and bounds may be of sequences that are all short.
TEST_F(StepTimeTest, AttentionHasTheWorkOfTheSequences) {
  const auto attention_s = [&](BatchBounds training) {
    work_.training = training;
    return time().busy_s[static_cast<size_t>(Busy::attention)];
  };
  const double whole = attention_s({4096, 1, 4096});
  EXPECT_NEAR(attention_s({3977, 1, 3977}), whole, 0.01 * whole);
  EXPECT_NEAR(attention_s({4096, 4096, 4096, 4096}), whole, 0.01 * whole);  // with their mean length
  EXPECT_NEAR(attention_s({4096, 2, 4096}), whole / 2, 0.02 * whole);
}

TEST_F(StepTimeTest, AnEvaluationDoesNotWaitForAnUpdate) {
  const double alone = time().evaluation_s;
  machine_.host_bytes_per_s = machine_.host_parameters_bytes_per_s = machine_.host_moments_bytes_per_s = 1e6;
  options_.sharding.offload = {.optimizer = Tier::host, .gradients = Tier::host};
  EXPECT_NEAR(time().evaluation_s, alone, 0.1 * alone);
}

TEST_F(StepTimeTest, MoreMicroBatchesTakeProportionallyLonger) {
  work_.micro_batches = 3;
  const double three = time().step_s;
  work_.micro_batches = 5;
  const double five = time().step_s;
  work_.micro_batches = 1'000'000;  // not simulated one by one
  const double many = time().step_s, one = (five - three) / 2;
  EXPECT_NEAR(many, three + (1e6 - 3) * one, 1e-3 * many);
}

TEST_F(StepTimeTest, RecomputationAddsForwardPasses) {
  const StepTime plain = time();
  options_.recomputation = {.blocks = kAllBlocks};
  const StepTime all = time();
  options_.recomputation = {.blocks = 1};
  const StepTime one = time();
  EXPECT_LT(plain.step_s, one.step_s);
  EXPECT_LT(one.step_s, all.step_s);
  EXPECT_LT(all.step_s, plain.step_s + 1.1 * plain.part_s[0]);
  // A part takes less time than the complete forward.
  options_.recomputation = {.mlp = kAllBlocks};
  const StepTime mlp = time();
  options_.recomputation = {.attention = kAllBlocks};
  const StepTime attention = time();
  options_.recomputation = {.mlp = kAllBlocks, .attention = kAllBlocks};
  const StepTime both = time();
  EXPECT_LT(plain.step_s, mlp.step_s);
  EXPECT_LT(plain.step_s, attention.step_s);
  EXPECT_LT(std::max(mlp.step_s, attention.step_s), both.step_s);
  EXPECT_LT(both.step_s, all.step_s);
  EXPECT_NEAR(both.part_s[0], plain.part_s[0], 1e-6 * plain.part_s[0]);
}

// The less is offloaded, the faster is a step. The links and the host bound it if they are slow.
TEST_F(StepTimeTest, EachOffloadedBlockCostsTime) {
  machine_.host_bytes_per_s = machine_.host_parameters_bytes_per_s = machine_.host_moments_bytes_per_s = 1e6;
  double last = time().step_s;
  for (int64_t blocks = 1; blocks <= config_.num_layers; ++blocks) {
    options_.sharding.offload = {.optimizer = Tier::host,
                                 .gradients = Tier::host,
                                 .part_of_optimizer = {OffloadedPart::Of::blocks, blocks},
                                 .part_of_gradients = {OffloadedPart::Of::blocks, blocks}};
    const StepTime t = time();
    EXPECT_GT(t.step_s, last) << blocks;
    EXPECT_EQ(t.bound(), Busy::host);
    last = t.step_s;
  }
  // If the GPU updates all of it, the host only moves data.
  options_.sharding.device_update_percent = 100;
  const StepTime streamed = time();
  EXPECT_LT(streamed.step_s, last);
  EXPECT_EQ(streamed.busy_s[static_cast<size_t>(Busy::host)], 0);
  EXPECT_GT(streamed.busy_s[static_cast<size_t>(Busy::to_device)], 0);
}

TEST_F(StepTimeTest, RanksWaitForTheirLinks) {
  rank_.world_size = 4;
  rank_.ranks_per_node = 4;
  options_.sharding.strategy = ShardingStrategy::full_shard;
  machine_.within_node.bytes_per_s = 1e12;
  const double fast = time().step_s;
  machine_.within_node.bytes_per_s = 1e5;
  const StepTime slow = time();
  EXPECT_GT(slow.step_s, 2 * fast);
  EXPECT_EQ(slow.bound(), Busy::network);
  machine_.within_node.bytes_per_s = 1e12;
  machine_.between_nodes.bytes_per_s = 1e5;
  rank_.ranks_per_node = 2;
  EXPECT_NEAR(time().step_s, slow.step_s, 0.2 * slow.step_s);
  options_.sharding.strategy = ShardingStrategy::hybrid_shard;  // only reduced shards go between nodes
  EXPECT_LT(time().step_s, slow.step_s);
}

}  // namespace
}  // namespace tessera
