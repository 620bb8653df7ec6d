// The time limit of MPI's own collectives, which start and end worlds and groups.
#pragma once

#include "tessera/comm/status_board.h"
#include "tessera/comm/time_limit.h"
#include "tessera/comm/world.h"

namespace tessera {

// Exists while the ranks wait for each other. If this takes longer than --comm-timeout plus a few seconds, this rank
// reports which ranks are missing and ends. Then all ranks end.
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
