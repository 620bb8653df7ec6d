// The time limit of the collective MPI calls that start MPI, form groups of ranks, or end MPI.
#pragma once

#include "tessera/comm/status_board.h"
#include "tessera/comm/time_limit.h"
#include "tessera/comm/world.h"

namespace tessera {

// Exists while this rank waits for the other ranks in such a call. If the wait is longer than --comm-timeout plus a few
// seconds, this rank reports an error and ends. Its end makes all ranks end. The error names the missing or stopped
// ranks, as far as the board shows them.
class RendezvousLimit {
 public:
  // `what` completes the message "not all ranks have …": "arrived" or "ended". `board` may be null. The board and the
  // options must outlive the object.
  RendezvousLimit(const char* what, int rank, const WorldOptions& options, StatusBoard* board);

 private:
  StatusBoard::Waiting waiting_;
  TimeLimit limit_;
};

}  // namespace tessera
