// Ranks that mpirun or srun started have no launcher of ours that tells what became of them: they look after each
// other.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "tessera/comm/status_board.h"

namespace tessera {

// A thread that looks for ranks of this node whose processes are gone though they neither ended in order nor failed: at
// the next one, so that all of them are looked at and none by many. As soon as one dies, mpirun ends the others by
// SIGTERM: where that would end this process at once, it does so no longer before the thread has looked. One at a time.
class PeerWatch {
 public:
  // The board, which outlives the watch, has been joined by all ranks of this node. Both calls come from the watch's
  // thread: `lost` once, with the first rank that is gone; `terminate` when a SIGTERM has come and nobody is.
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
  std::vector<int> peers_;  // from the next rank on
  bool puts_off_termination_;
  std::mutex mutex_;
  std::condition_variable end_;
  bool ended_ = false;
  std::thread thread_;
};

}  // namespace tessera
