// A time limit for calls that wait for other ranks and have no time limit of their own: they start and end MPI, and end
// the connections of a run.
#pragma once

#include "tessera/comm/status_board.h"
#include "tessera/comm/time_limit.h"
#include "tessera/comm/world.h"

namespace tessera {

// Create this object before such a call and destroy it after the call. If it exists longer than --comm-timeout plus a
// few seconds, this rank reports the ranks that it knows to be missing, and ends. Then all ranks end.
class RendezvousLimit {
 public:
  // `what` completes the message "not all ranks have …": "arrived" or "ended". `board` may be null. The board and the
  // options must outlive this object.
  RendezvousLimit(const char* what, int rank, const WorldOptions& options, StatusBoard* board);

 private:
  StatusBoard::Waiting waiting_;
  TimeLimit limit_;
};

}  // namespace tessera
