#include "tessera/engine/block_graphs.h"

#include <gtest/gtest.h>

#include <vector>

namespace tessera {
namespace {

TEST(PaddedTokens, AreFewSizesWithLittlePadding) {
  EXPECT_EQ(padded_tokens(1), 32);
  EXPECT_EQ(padded_tokens(32), 32);
  EXPECT_EQ(padded_tokens(33), 64);
  EXPECT_EQ(padded_tokens(1025), 1088);
  EXPECT_EQ(padded_tokens(2047), 2048);
  EXPECT_EQ(padded_tokens(2048), 2048);
  for (int64_t n = 512; n < 20000; n += 7) {
    EXPECT_GE(padded_tokens(n), n);
    EXPECT_LT(padded_tokens(n) - n, n / 16 + 1);
    // Memory is planned only for the largest batch, so a smaller batch must not get a larger padded size.
    EXPECT_LE(padded_tokens(n - 1), padded_tokens(n));
  }
}

// The backward pass of attention needs scratch for a group: the query heads that share a head of keys and values. Each
// query head needs 4 bytes per token (its delta, see attention_backward.cuh), 4 bytes per 64 tokens (a count), and 4
// more bytes. The tokens include the padding of a training batch (padded_tokens()).
TEST(PaddedTokens, LargestBatchFitsTheScratchOfAttention) {
  constexpr int64_t kScratchOfGpu = int64_t{32} << 20;  // kScratchBytes of ops/cuda/context.h
  for (int64_t group = 1; group <= 128; ++group) {
    const int64_t tokens = padded_tokens(max_batch_tokens(group));
    EXPECT_LE(4 * group * (tokens + tokens / 64 + 1), kScratchOfGpu) << group;
  }
  EXPECT_EQ(max_batch_tokens(1), kMaxBatchTokens);
}

// Counts the calls of capture(), and the launches of the captured graphs. capture() runs the work once. The other
// methods of this stream do nothing.
class RecordingStream final : public Stream {
 public:
  Event record() override { return {}; }
  void wait(const Event&) override {}
  void run(std::function<void()>) override {}
  void copy(View, View) override {}
  std::unique_ptr<StreamGraph> capture(const std::function<void()>& work) override {
    struct Graph final : StreamGraph {
      explicit Graph(int& launches) : launches_(launches) {}
      void launch() override { ++launches_; }
      int& launches_;
    };
    ++num_captures;
    work();
    return std::make_unique<Graph>(num_launches);
  }

  int num_captures = 0, num_launches = 0;
};

struct BlockGraphsTest : testing::Test {
  // Runs work through `graphs`. Like a block's forward pass, the work leaves data on the stack.
  void run(BlockGraphs& graphs, int64_t size) {
    const StackScope scope(stack);
    graphs.run({size}, frame, [&](Frame& f) {
      kernels_of_runs.push_back(f.ops);
      f.push(size, 10);
    });
    heights.push_back(stack.mark());
  }

  std::unique_ptr<Device> device = make_counting_device();
  std::unique_ptr<Kernels> kernels = make_kernels(*device);
  Stack stack{*device, 1 << 20};
  Batch batch;
  Frame frame{kernels.get(), stack, batch, DType::f32};
  RecordingStream stream;
  std::vector<Kernels*> kernels_of_runs;
  std::vector<int64_t> heights;
};

TEST_F(BlockGraphsTest, WorkRunsThenIsCapturedThenOnlyMovesTheStack) {
  BlockGraphs graphs(stream, true);
  for (int i = 0; i < 4; ++i) run(graphs, 100);
  EXPECT_EQ(kernels_of_runs[0], kernels.get());
  EXPECT_EQ(kernels_of_runs[1], kernels.get());
  EXPECT_NE(kernels_of_runs[2], kernels.get());
  EXPECT_NE(kernels_of_runs[3], kernels.get());
  EXPECT_EQ(heights, std::vector<int64_t>(4, heights[0]));
  EXPECT_EQ(stream.num_captures, 1);
  EXPECT_EQ(stream.num_launches, 3);
  EXPECT_EQ(graphs.num_launches(), 3);
}

TEST_F(BlockGraphsTest, EachKeyHasItsOwnGraph) {
  BlockGraphs graphs(stream, true);
  for (const int64_t size : {100, 200, 100, 300, 200}) run(graphs, size);
  EXPECT_EQ(stream.num_captures, 2);
  EXPECT_EQ(stream.num_launches, 2);
}

TEST_F(BlockGraphsTest, CreatesNoMoreGraphsThanTheLimit) {
  BlockGraphs graphs(stream, true);
  graphs.limit_to(2);
  for (int i = 0; i < 3; ++i) {
    for (const int64_t size : {100, 200, 300}) run(graphs, size);
  }
  EXPECT_EQ(stream.num_captures, 2);
  EXPECT_EQ(graphs.num_graphs(), 2);
  EXPECT_EQ(stream.num_launches, 4);  // two launches for each of the first two sizes
  EXPECT_EQ(kernels_of_runs.back(), kernels.get());
  for (size_t i = 3; i < heights.size(); ++i) EXPECT_EQ(heights[i], heights[i - 3]);
}

TEST_F(BlockGraphsTest, WithoutGraphsAllWorkRunsDirectly) {
  BlockGraphs graphs(stream, false);
  for (int i = 0; i < 3; ++i) run(graphs, 100);
  EXPECT_EQ(kernels_of_runs, std::vector<Kernels*>(3, kernels.get()));
  EXPECT_EQ(stream.num_captures, 0);
}

}  // namespace
}  // namespace tessera
