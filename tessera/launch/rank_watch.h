// Finds the rank that dies first. The launcher cannot wait() for the ranks, because their parent is mpirun. Therefore
// the launcher holds a descriptor (pidfd_open) for the process of each rank. A descriptor shows the end of its
// process before mpirun ends the other ranks.
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
  // Returns the ranks whose processes have died since the previous call. Ranks that ended normally or reported a
  // failure are left out. Linux before 5.3 has no pidfd_open, so no descriptors exist. There, the death of a rank
  // does not wake up poll(), but the next call of newly_lost() finds that the process is gone.
  std::vector<int> newly_lost();
  // Returns the signal that killed a rank. Call signal_of() only for a rank whose process is gone. Returns 0 if no
  // signal killed the rank, or if the signal is unknown, as on Linux before 6.15. Waits up to 0.5 s until mpirun has
  // reaped the process.
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
