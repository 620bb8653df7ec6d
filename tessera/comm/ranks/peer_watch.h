// If mpirun or srun started the ranks, no Tessera launcher reports how they end. Therefore the ranks watch each other.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "tessera/comm/status_board.h"

namespace tessera {

// A thread that looks for lost ranks of this node. A rank is lost if its process is gone, and the rank has neither
// ended normally nor reported a failure. The thread polls only the next rank of this node, so each rank is watched by
// one other rank. When a rank dies, mpirun sends SIGTERM to all other ranks. If this process has no handler for
// SIGTERM, the watch delays the end of the process until the thread has looked for a lost rank among all other ranks
// of this node. Only one watch may exist in a process at a time.
class PeerWatch {
 public:
  // All ranks of this node must have joined the board, which must outlive the watch. At most one of the two functions
  // is called, once, on the watch's thread: `lost` with the rank that lost() returns, or `terminate` if a SIGTERM has
  // arrived and no rank is lost.
  PeerWatch(const StatusBoard& board, int rank, std::function<void(int)> lost, std::function<void()> terminate);
  ~PeerWatch();
  PeerWatch(const PeerWatch&) = delete;
  PeerWatch& operator=(const PeerWatch&) = delete;

  std::optional<int> lost() const;  // the first lost rank in the order of peers_

 private:
  void work();

  const StatusBoard& board_;
  const std::function<void(int)> lost_;
  const std::function<void()> terminate_;
  // The other ranks of this node, in ascending order from the next rank on. After the highest rank comes the lowest.
  std::vector<int> peers_;
  bool puts_off_termination_;
  std::mutex mutex_;
  std::condition_variable end_;
  bool ended_ = false;
  std::jthread thread_;
};

}  // namespace tessera
