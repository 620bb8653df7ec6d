// Where the ranks of a run meet if no MPI connects them.
#pragma once

#include <optional>
#include <string>

#include "tessera/base/process.h"

namespace tessera {

// Rank 0 listens at the first free one of the ports. The other ranks try the ports in turn, until rank 0 of their own
// run answers. They know it by the token.
struct MeetingPoint {
  std::string host{};  // the name or the address of rank 0's machine
  int first_port = 0;  // at least 1
  int num_ports = 1;
  std::string token{};    // the same for all ranks of a run, and another one for every other run
  bool is_local = false;  // all ranks are on one machine, so they need only its loopback interface
  int listener = -1;      // of rank 0: the descriptor of a socket that already listens at the port; -1: none
  std::string place{};    // of `host` and the ports, for errors, such as "MASTER_ADDR"
};

// torchrun keeps MASTER_PORT for a store of its own if it sets TORCHELASTIC_USE_AGENT_STORE to True. The ranks then use
// the ports after MASTER_PORT.
constexpr int kPortsAfterStore = 8;

// Reads MASTER_ADDR and MASTER_PORT, and the variables of torchrun. Throws UsageError if a variable is missing or
// wrong. Environments of different runs that have the same address and the same port also give the same token, except
// if a variable of the starter differs: TORCHELASTIC_RUN_ID, TORCHELASTIC_RESTART_COUNT, SLURM_JOB_ID or SLURM_STEP_ID.
MeetingPoint meeting_of_torchrun(const Environment& environment, int rank, int size);

// Uses MASTER_ADDR and MASTER_PORT if they are set. Otherwise, rank 0 is on the first node of the job step. The ports
// then follow from the numbers of the job and the step.
MeetingPoint meeting_of_srun(const Environment& environment, int rank, int size);

// The first host of a list of Slurm: "n1" of "n1,n2", "gpu07" of "gpu[07-09,12]". Empty if the list is not valid.
std::string first_host(const std::string& list);

}  // namespace tessera
