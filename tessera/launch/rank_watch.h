// Which rank dies first. The launcher is not the parent of its ranks (mpirun is), so it holds a descriptor of each
// process (pidfd_open) and learns of its end at once, before mpirun ends the other ranks.
#pragma once

#include <poll.h>

#include <vector>

#include "tessera/comm/status_board.h"

namespace tessera {

class RankWatch {
 public:
  explicit RankWatch(const StatusBoard& board);  // which outlives the watch
  ~RankWatch();
  RankWatch(const RankWatch&) = delete;
  RankWatch& operator=(const RankWatch&) = delete;

  // Adds the descriptors of all ranks that have joined the board and live. Each becomes readable when its process ends.
  void add_to(std::vector<pollfd>& events);
  // The ranks whose processes have ended since the last call, neither in order nor with a failure of their own.
  // Without pidfd_open (before Linux 5.3) it is as exact as calls are frequent.
  std::vector<int> newly_lost();
  // The signal that ended a rank that is gone; 0: none did, or the system does not say (before Linux 6.15). Waits a
  // moment until the rank's parent has learned of its end.
  int signal_of(int rank) const;

 private:
  struct Rank {
    int descriptor = -1;  // -1: none could be had
    bool is_open = false, has_gone = false;
  };
  const StatusBoard& board_;
  std::vector<Rank> ranks_;
};

}  // namespace tessera
