// One run of mpirun, from its start to its end. Forwards signals to the ranks.
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

// Receives SIGCHLD and the signals to forward: blocks them, and reads them from a descriptor instead. Exception: leaves
// SIGHUP and SIGINT as they are if the parent ignores them.
class ForwardedSignals {
 public:
  ForwardedSignals();
  ~ForwardedSignals();
  ForwardedSignals(const ForwardedSignals&) = delete;
  ForwardedSignals& operator=(const ForwardedSignals&) = delete;

  int descriptor() const { return descriptor_; }    // to poll
  int next();                                       // the number of a signal that has arrived; 0: none
  int wait(double seconds);                         // waits for a signal other than SIGCHLD; 0: none arrived
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
  std::string noise;        // the output of mpirun, and of the ranks before they took over the launcher's streams
  std::vector<int> forwarded;  // forwarded signals, in order
};

// Runs this program with `arguments` as `num_ranks` ranks on this machine and waits until they end. The variable
// kLauncherVariable gives the ranks the names of `board` and of the socket of `streams`.
MpirunEnd run_mpirun(const std::string& mpirun, int num_ranks, const std::vector<std::string>& arguments,
                     const Environment& environment, const StatusBoard& board, StreamSocket& streams,
                     ForwardedSignals& signals);

// The flavour of the mpirun at `path`, from the output of `mpirun --version`.
MpiFlavour flavour_of_mpirun(const std::string& path);

}  // namespace tessera
