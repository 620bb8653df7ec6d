// Launches the kernels of a block's forward or backward as one CUDA graph. A block has about 25 kernels. In a
// batch of a few hundred tokens, the host needs more time to launch a kernel than the GPU needs to run it. Gathering
// and reducing stay on their own streams outside the graphs, so the same graphs serve every strategy.
#pragma once

#include <array>
#include <functional>
#include <limits>
#include <map>
#include <memory>

#include "tessera/device/counting/counting_device.h"
#include "tessera/model/unit.h"

namespace tessera {

// The number of tokens that a GPU computes for a training micro-batch of `num_tokens` tokens. A GPU adds up to 31
// tokens if num_tokens is less than 1024, otherwise up to a sixteenth of num_tokens. The added tokens form one sequence
// without loss. They reduce the number of different batch sizes. Each size needs its own graphs and its own choice of
// kernels for matrix products. Products in 8 bits need a multiple of 4.
int64_t padded_tokens(int64_t num_tokens);

class BlockGraphs {
 public:
  // All that a graph depends on: the block, its work (forward or backward), sizes and addresses.
  using Key = std::array<int64_t, 12>;
  using Work = std::function<void(Frame&)>;

  // `on` = false: launches every kernel separately.
  // `timeline`: of a counting device, on which every block is one launch.
  BlockGraphs(Stream& compute, bool on, Timeline* timeline = nullptr);

  // Runs `work`, which must depend only on the key. The first time a key is used, the work runs directly. From the
  // second time on, it runs as a graph. Exception: if the key has no graph yet and the limit of limit_to() is reached,
  // the work runs directly. In all cases, run() changes the frame's stack as the work itself does. The work must
  // launch all its kernels on the compute stream. From the second time on, the work must not allocate device memory or
  // wait for the GPU, because a capture allows neither.
  void run(const Key& key, Frame& frame, const Work& work);

  void limit_to(int64_t most_graphs) { most_graphs_ = most_graphs; }
  int64_t num_graphs() const { return num_graphs_; }
  int64_t num_launches() const { return num_launches_; }

 private:
  Stream& compute_;
  const bool on_;
  Timeline* const timeline_;
  std::unique_ptr<Device> nowhere_;  // a counting device: work that uses its kernels only changes the frame's stack
  std::unique_ptr<Kernels> no_kernels_;
  std::map<Key, std::unique_ptr<StreamGraph>> graphs_;  // null: the work has only run directly so far
  int64_t most_graphs_ = std::numeric_limits<int64_t>::max(), num_graphs_ = 0, num_launches_ = 0;
};

}  // namespace tessera
