// Launches the kernels of a block's forward or backward as one CUDA graph. A block has about 25 kernels. In a
// batch of a few hundred tokens, the host needs more time to launch a kernel than the GPU needs to run it. Gathering
// and reducing stay on their own streams outside the graphs, so the same graphs serve every strategy.
#pragma once

#include <array>
#include <functional>
#include <limits>
#include <map>
#include <memory>

#include "tessera/model/unit.h"

namespace tessera {

// The number of tokens that a GPU computes for a training micro-batch of `num_tokens`: these tokens and up to a
// sixteenth more, or up to 31 more if the micro-batch is small. The added tokens form one sequence without loss.
// Batches of mixed lengths then have few different sizes. Each size needs its own graphs and its own choice of matrix
// product kernels.
int64_t padded_tokens(int64_t num_tokens);

class BlockGraphs {
 public:
  // All that a graph depends on: the block, its work (forward or backward), sizes and addresses.
  using Key = std::array<int64_t, 10>;
  using Work = std::function<void(Frame&)>;

  // `on` = false: launches every kernel separately.
  BlockGraphs(Stream& compute, bool on);

  // Runs `work`, which must depend only on the key. The first time a key is used, the work runs directly. From the
  // second time on, it runs as a graph, unless this would make more graphs than limit_to() allows. The frame's stack
  // changes in the same way in both cases. The work may only launch kernels on the compute stream.
  void run(const Key& key, Frame& frame, const Work& work);

  void limit_to(int64_t most_graphs) { most_graphs_ = most_graphs; }
  int64_t num_graphs() const { return num_graphs_; }
  int64_t num_launches() const { return num_launches_; }

 private:
  Stream& compute_;
  const bool on_;
  std::unique_ptr<Device> nowhere_;  // a counting device: work with its kernels changes only the frame's stack
  std::unique_ptr<Kernels> no_kernels_;
  std::map<Key, std::unique_ptr<StreamGraph>> graphs_;  // null: the work has only run directly so far
  int64_t most_graphs_ = std::numeric_limits<int64_t>::max(), num_graphs_ = 0, num_launches_ = 0;
};

}  // namespace tessera
