// `--nproc N`: the ranks of one machine, started through mpirun and looked after until their end.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tessera/app/verbs.h"
#include "tessera/comm/world.h"

namespace tessera {

// What the launcher told this process, if one started it.
struct LauncherLink {
  std::string board, socket;
};
std::optional<LauncherLink> find_launcher(const Environment& environment);

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
int launch(const Invocation& invocation, const std::vector<std::string>& arguments);

// Runs the verb among its ranks: as one of those that this process was started with, as the launcher of --nproc, or
// alone. Returns the exit code. Where there are other ranks, a failure ends them all.
int run_as_ranks(Invocation& invocation, const std::optional<RankEnvironment>& ranks,
                 const std::vector<std::string>& arguments);

// The part of a verb's work that uses the other ranks. On GPUs a failure in it ends all ranks from here, before what
// the verb holds is taken apart: that would wait for collectives that nobody ends any more. `before_end` does what must
// not be left undone then, and waits for nobody.
int run_among_ranks(const Invocation& invocation, const std::function<int()>& work,
                    const std::function<void()>& before_end = {});

// Tells of a failure outside of a world: of a process on its own, or of a rank that has not come so far as to meet the
// others. What all ranks find is told by one of them.
void tell_failure(const Environment& environment, const Failure& failure);

}  // namespace tessera
