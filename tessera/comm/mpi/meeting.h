// The time limit of MPI's own collectives, with which worlds and groups begin and end.
#pragma once

#include "tessera/comm/status_board.h"
#include "tessera/comm/time_limit.h"
#include "tessera/comm/world.h"

namespace tessera {

// While it lives, all ranks meet. Where that takes longer than --comm-timeout and some seconds, this rank tells who is
// missing and ends, and so all of them do.
class Meeting {
 public:
  // `what` they do: "met", "ended". The board may be null; it and the options must outlive it.
  Meeting(const char* what, int rank, const WorldOptions& options, StatusBoard* board);

 private:
  StatusBoard::Waiting waiting_;
  TimeLimit limit_;
};

}  // namespace tessera
