// Launches a block's kernels, about 25 forward and backward, as one CUDA graph. At a few hundred tokens, the host needs
// more time to launch a kernel than the GPU needs to run it. Gathering and reducing stay on their own streams outside
// the graphs, so the same graphs serve every strategy.
#pragma once

#include <array>
#include <functional>
#include <limits>
#include <map>
#include <memory>

#include "tessera/model/unit.h"

namespace tessera {

// The number of tokens that a GPU computes for a training micro-batch: up to a sixteenth more than it has. The added
// tokens form a sequence without loss. Batches of mixed lengths then have few sizes, for graphs and for the choice of
// products.
int64_t padded_tokens(int64_t num_tokens);

class BlockGraphs {
 public:
  // What a graph fixes: the block, the work on it, sizes and addresses.
  using Key = std::array<int64_t, 10>;
  using Work = std::function<void(Frame&)>;

  // `on`: false launches every kernel separately.
  BlockGraphs(Stream& compute, bool on);

  // Runs work that depends only on the key. The first time a key is used, the work runs directly. From the second time
  // on it runs as a graph, up to the number of graphs that limit_to() allows. In both cases the frame's stack changes
  // in the same way. The work may only launch kernels on the compute stream.
  void run(const Key& key, Frame& frame, const Work& work);

  void limit_to(int64_t most_graphs) { most_graphs_ = most_graphs; }
  int64_t num_graphs() const { return num_graphs_; }
  int64_t num_launches() const { return num_launches_; }

 private:
  Stream& compute_;
  const bool on_;
  std::unique_ptr<Device> nowhere_;  // kernels do nothing here; a frame on it only moves its stack
  std::unique_ptr<Kernels> no_kernels_;
  std::map<Key, std::unique_ptr<StreamGraph>> graphs_;  // null: the work has run once, directly
  int64_t most_graphs_ = std::numeric_limits<int64_t>::max(), num_graphs_ = 0, num_launches_ = 0;
};

}  // namespace tessera
