// A block's kernels, some 25 of them forward and backward, put on a GPU as one: at a few hundred tokens the host would
// take longer to launch each than the GPU to run it. Gathering and reducing go on beside them on their own streams, so
// that one way serves every strategy.
#pragma once

#include <array>
#include <functional>
#include <limits>
#include <map>
#include <memory>

#include "tessera/model/unit.h"

namespace tessera {

// Tokens of a micro-batch that is trained on a GPU, up to a sixteenth more than it has: what is added is a sequence of
// its own without loss, so that batches of mixed lengths have few sizes, for graphs and for the choice of products.
int64_t padded_tokens(int64_t num_tokens);

class BlockGraphs {
 public:
  // What a graph holds fast: the block and what is done with it, sizes and addresses.
  using Key = std::array<int64_t, 10>;
  using Work = std::function<void(Frame&)>;

  // `on`: false runs all work at once, launch by launch.
  BlockGraphs(Stream& compute, bool on);

  // Runs work that depends on the key alone, and leaves the frame's stack as it does: at once when the key is new, from
  // the second time on as a graph, as long as there are no more than limit_to() allows. The work must put kernels on
  // the compute stream and do nothing else.
  void run(const Key& key, Frame& frame, const Work& work);

  void limit_to(int64_t most_graphs) { most_graphs_ = most_graphs; }
  int64_t num_graphs() const { return num_graphs_; }
  int64_t num_launches() const { return num_launches_; }

 private:
  Stream& compute_;
  const bool on_;
  std::unique_ptr<Device> nowhere_;  // where kernels do nothing: a frame that runs there only keeps its stack
  std::unique_ptr<Kernels> no_kernels_;
  std::map<Key, std::unique_ptr<StreamGraph>> graphs_;  // null: has run once
  int64_t most_graphs_ = std::numeric_limits<int64_t>::max(), num_graphs_ = 0, num_launches_ = 0;
};

}  // namespace tessera
