// The ranks of `--nproc`, from their start to their end. During the run, this process (the launcher) forwards signals
// to the ranks.
#pragma once

#include <string>
#include <vector>

#include "tessera/base/process.h"
#include "tessera/comm/status_board.h"
#include "tessera/launch/forwarded_signals.h"

namespace tessera {

struct RanksEnd {
  std::vector<int> statuses;  // by rank, as waitpid() returns them
  std::vector<int> lost;      // ranks that died without an orderly end or a reported error; lost[0] probably died first
  // Whether the launcher has killed the ranks, because signals came again or because no rank was ready for a signal.
  bool gave_up = false;
  // The signals that arrived, in order, without SIGCHLD. Signals that arrive within kSameRequest (launch/signals.h) of
  // the first one are left out too: they belong to the same request to stop.
  std::vector<int> forwarded;
};

// Starts `program` with `arguments` as `num_ranks` ranks on this machine, and waits until they end. The ranks have the
// streams of this process. Exceptions: their standard input is empty, and the standard output of all ranks except rank
// 0 is the standard error. They get the variables that comm/launcher_link.h describes, with the name of `board`. If a
// rank fails or stops, kills the ranks that have not ended shortly after. Throws RunError if a rank cannot start.
RanksEnd run_ranks(const std::string& program, int num_ranks, const std::vector<std::string>& arguments,
                   const Environment& environment, const StatusBoard& board, ForwardedSignals& signals);

// Describes how a process ended: "was killed by signal 9 (Killed)", "ended with exit code 3".
std::string text_of_end(int status);

}  // namespace tessera
