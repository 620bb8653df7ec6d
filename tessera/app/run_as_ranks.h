// How a verb runs: alone, as one of several ranks, or as the launcher of ranks.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tessera/app/verbs.h"
#include "tessera/comm/world.h"
#include "tessera/log/console.h"

namespace tessera {

// Runs the verb as one of the ranks that were started together, as the launcher of --nproc, or alone. Returns the exit
// code. With several ranks, the failure of one rank ends all ranks.
int run_as_ranks(Invocation& invocation, const std::optional<RankEnvironment>& ranks,
                 const std::vector<std::string>& arguments);

// The console of a verb: the first rank prints to standard output and error, the other ranks print nothing.
Console console_of(const Invocation& invocation, Console::LostOutput lost_output = Console::LostOutput::ends_the_verb);

// Runs `work`, the part of a verb that communicates with other ranks, and returns its exit code. If `work` throws in a
// run with several ranks on GPUs, this function ends all ranks. It does so before the destructors of the caller's
// objects run, because these destructors would wait for collectives that never finish. `before_end` runs before the
// ranks end. It does the necessary clean-up, and must not wait for other ranks. In other runs, the exception reaches
// the caller.
int run_among_ranks(const Invocation& invocation, const std::function<int()>& work,
                    const std::function<void()>& before_end = {});

// Reports a failure outside of a World: the failure of a single process, or of a rank before it meets the other ranks.
// A rank that --nproc started gives its failure to the launcher of --nproc, which reports only one failure. A rank that
// another program started reports its failure itself. If all ranks have the same failure, usually only rank 0 reports
// it: the other ranks first wait for a second, and mpirun or torchrun ends them when rank 0 has ended.
void report_failure(const Environment& environment, const Failure& failure);

}  // namespace tessera
