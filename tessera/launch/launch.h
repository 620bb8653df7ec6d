// `--nproc N`: the ranks of one machine, started through mpirun and looked after until their end.
#pragma once

#include <string>
#include <vector>

#include "tessera/base/process.h"
#include "tessera/settings/resolve.h"

namespace tessera {

// Runs this program with these arguments as settings().nproc ranks, again from the last checkpoint after a failure as
// often as --max-restarts says, and returns the exit code that the ranks agree on. What failed is told in one line:
//
//   a rank threw            its error and its exit code
//   a rank was killed       exit code 5, unless by a signal that the launcher passed on: 128 + its number
//   ranks waited too long   exit code 5
//
// SIGTERM, SIGINT, SIGHUP, SIGUSR1 and SIGUSR2 go on to all ranks. Usage, input and memory errors would come again, and
// what ended by a signal was meant to end: they are not restarted. Neither is a restart that has made no checkpoint.
// Throws Error with the account and the code.
int launch(const ResolvedSettings& resolved, const Environment& environment, const std::vector<std::string>& arguments);

}  // namespace tessera
