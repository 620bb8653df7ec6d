// Finds the rank that dies first. The parent of the ranks is mpirun, not the launcher. Therefore the launcher holds a
// descriptor of each rank's process (pidfd_open), which reports the end of the process before mpirun ends the other
// ranks.
#pragma once

#include <poll.h>

#include <vector>

#include "tessera/comm/status_board.h"

namespace tessera {

class RankWatch {
 public:
  explicit RankWatch(const StatusBoard& board);  // the board must outlive the watch
  ~RankWatch();
  RankWatch(const RankWatch&) = delete;
  RankWatch& operator=(const RankWatch&) = delete;

  // Adds the descriptors of all living ranks that have joined the board. A descriptor becomes readable when its process
  // ends.
  void add_to(std::vector<pollfd>& events);
  // The ranks whose processes have died since the last call. Ranks that ended in an orderly way or reported a failure
  // do not count. Before Linux 5.3 (without pidfd_open) no descriptors exist, so poll() does not wake up when a rank
  // dies; the next call of newly_lost() finds that the process is gone.
  std::vector<int> newly_lost();
  // The signal that killed a rank that is gone; 0: none, or unknown (before Linux 6.15). Waits up to 0.5 s until the
  // parent has reaped the process.
  int signal_of(int rank) const;

 private:
  struct Rank {
    int descriptor = -1;  // -1: not available
    bool is_open = false, has_gone = false;
  };
  const StatusBoard& board_;
  std::vector<Rank> ranks_;
};

}  // namespace tessera
