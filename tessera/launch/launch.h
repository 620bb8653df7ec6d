// `--nproc N`: starts the ranks of one machine and supervises them until they end.
#pragma once

#include <string>
#include <vector>

#include "tessera/base/process.h"
#include "tessera/settings/resolve.h"

namespace tessera {

// Runs this program with `arguments` as --nproc ranks and returns the exit code of the ranks. After a failure it
// restarts the ranks from the last checkpoint, at most --max-restarts times. If it does not restart them, it throws an
// Error with an exit code and a description of the failure:
//
//   a rank threw            the rank's error and exit code
//   a rank was killed       exit code 5
//   ranks waited too long   exit code 5
//
// Forwards SIGTERM, SIGINT, SIGHUP, SIGUSR1 and SIGUSR2 to all ranks. If a forwarded signal n kills a rank, returns
// 128 + n. Does not restart after a forwarded signal, or after usage, input and memory errors, because these errors
// would occur again. After a restart, restarts again only if the ranks have made a new checkpoint. If a signal
// arrives during the pause before a restart, returns 75.
int launch(const ResolvedSettings& resolved, const Environment& environment, const std::vector<std::string>& arguments);

}  // namespace tessera
