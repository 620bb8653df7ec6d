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

// A thread that looks for lost ranks of this node: their process is gone, and it has neither ended normally nor
// reported a failure. It polls only the next rank, so each rank is watched by one other rank. When a rank dies, mpirun
// ends the others with SIGTERM. If SIGTERM would end this process at once, the watch delays it until its thread has
// looked. Only one watch may exist at a time.
class PeerWatch {
 public:
  // All ranks of this node have joined the board, which must outlive the watch. Both functions are called from the
  // watch's thread, one of them at most once: `lost` with the first rank that is gone, `terminate` if a SIGTERM has
  // arrived and no rank is gone.
  PeerWatch(const StatusBoard& board, int rank, std::function<void(int)> lost, std::function<void()> terminate);
  ~PeerWatch();
  PeerWatch(const PeerWatch&) = delete;
  PeerWatch& operator=(const PeerWatch&) = delete;

  std::optional<int> lost() const;  // the first rank that is gone

 private:
  void work();

  const StatusBoard& board_;
  const std::function<void(int)> lost_;
  const std::function<void()> terminate_;
  std::vector<int> peers_;  // starting with the next rank
  bool puts_off_termination_;
  std::mutex mutex_;
  std::condition_variable end_;
  bool ended_ = false;
  std::thread thread_;
};

}  // namespace tessera
