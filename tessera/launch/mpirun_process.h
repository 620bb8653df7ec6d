// One run of mpirun, from its start to its end. During the run, this process (the launcher) forwards signals to the
// ranks.
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

// Receives SIGCHLD and the signals to forward (SIGTERM, SIGINT, SIGHUP, SIGUSR1 and SIGUSR2). While the object exists,
// these signals are blocked, and the object reads them from a descriptor. Exception: if parent_ignores()
// (launch/surroundings.h) returns true for a signal, the object does not change how the process treats this signal.
class ForwardedSignals {
 public:
  ForwardedSignals();
  ~ForwardedSignals();
  ForwardedSignals(const ForwardedSignals&) = delete;
  ForwardedSignals& operator=(const ForwardedSignals&) = delete;

  int descriptor() const { return descriptor_; }    // readable when a signal has arrived; for poll()
  int next();                                       // takes a signal that has arrived, returns its number; 0: none
  int wait(double seconds);                         // like next(), but ignores SIGCHLD and waits up to `seconds`
  const sigset_t& usual() const { return usual_; }  // the signal mask before construction

 private:
  sigset_t usual_;
  int descriptor_;
};

struct MpirunEnd {
  int code = 0;             // mpirun's exit code; 128 + n if signal n killed it
  bool was_killed = false;  // a signal killed mpirun itself
  int wait_error = 0;       // errno if the exit status of mpirun is unknown; `code` is then meaningless
  std::vector<int> lost;    // ranks that died without an orderly end or a reported error; lost[0] probably died first
  int signal_of_lost = 0;   // the signal that killed lost[0]; 0: unknown
  std::string noise;        // output of mpirun, and of ranks until they use the launcher's streams
  // The signals that arrived, in order, without SIGCHLD. Signals that arrive within kSameRequest (launch/signals.h) of
  // the first one are left out too: they belong to the same request to stop.
  std::vector<int> forwarded;
};

// Runs this program with `arguments` as `num_ranks` ranks on this machine and waits until they end. The environment
// variable kLauncherVariable (comm/launcher_link.h) gives the ranks the names of `board` and of the socket in
// `streams`.
MpirunEnd run_mpirun(const std::string& mpirun, int num_ranks, const std::vector<std::string>& arguments,
                     const Environment& environment, const StatusBoard& board, StreamSocket& streams,
                     ForwardedSignals& signals);

// The flavour of the mpirun at `path`, from the output of `mpirun --version`.
MpiFlavour flavour_of_mpirun(const std::string& path);

}  // namespace tessera
