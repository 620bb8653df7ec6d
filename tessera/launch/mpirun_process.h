// One run of mpirun: its start, the signals on their way to the ranks, and its end.
#pragma once

#include <csignal>
#include <optional>
#include <string>
#include <vector>

#include "tessera/comm/mpi_flavour.h"
#include "tessera/comm/status_board.h"
#include "tessera/launch/launcher_streams.h"
#include "tessera/settings/resolve.h"

namespace tessera {

// Keeps the signals that are forwarded, and the one of a child's end, from their usual effect; they are read instead.
// SIGHUP and SIGINT that the parent ignores are left alone.
class ForwardedSignals {
 public:
  ForwardedSignals();
  ~ForwardedSignals();
  ForwardedSignals(const ForwardedSignals&) = delete;
  ForwardedSignals& operator=(const ForwardedSignals&) = delete;

  int descriptor() const { return descriptor_; }  // to poll
  int next();                                     // the number of one that has come; 0: none
  int wait(double seconds);                       // for one, unless it is a child's end; 0: none has come
  const sigset_t& usual() const { return usual_; }

 private:
  sigset_t usual_;
  int descriptor_;
};

struct MpirunEnd {
  int code = 0;                // mpirun's exit code, 128 + n after a signal n
  bool was_killed = false;     // mpirun itself, by a signal
  int wait_error = 0;          // errno where the system does not say how mpirun ended; `code` means nothing then
  std::vector<int> lost;       // ranks that died first, likeliest first: they neither ended in order nor failed
  int signal_of_lost = 0;      // that ended the first of them; 0: not known
  std::string noise;           // all that mpirun and the ranks' first moments wrote
  std::vector<int> forwarded;  // signals, in their order
};

// Runs this program with `arguments` as `num_ranks` ranks on this machine and waits for their end. They find the board
// and the socket by kLauncherVariable.
MpirunEnd run_mpirun(const std::string& mpirun, int num_ranks, const std::vector<std::string>& arguments,
                     const Environment& environment, const StatusBoard& board, StreamSocket& streams,
                     ForwardedSignals& signals);

// The flavour of the mpirun at `path`, by the version that it prints.
MpiFlavour flavour_of_mpirun(const std::string& path);

}  // namespace tessera
