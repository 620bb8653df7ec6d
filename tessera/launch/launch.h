// `--nproc N`: starts the ranks of one machine through mpirun and supervises them until they end.
#pragma once

#include <string>
#include <vector>

#include "tessera/base/process.h"
#include "tessera/settings/resolve.h"

namespace tessera {

// Runs this program with these arguments as settings.nproc ranks and returns the exit code of the ranks. After a
// failure it restarts them from the last checkpoint, at most --max-restarts times. If it does not restart, it throws an
// Error with the exit code and one line that describes the failure:
//
//   a rank threw            the rank's error and exit code
//   a rank was killed       exit code 5
//   ranks waited too long   exit code 5
//
// Forwards SIGTERM, SIGINT, SIGHUP, SIGUSR1 and SIGUSR2 to all ranks. If a forwarded signal kills a rank, returns 128 +
// its number. Does not restart after a forwarded signal, after usage, input and memory errors (they would occur again),
// or after a restart that made no checkpoint.
int launch(const ResolvedSettings& resolved, const Environment& environment, const std::vector<std::string>& arguments);

}  // namespace tessera
