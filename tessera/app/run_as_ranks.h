// How a verb runs: alone, as one of several ranks, or as the launcher of ranks.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tessera/app/verbs.h"
#include "tessera/comm/world.h"

namespace tessera {

// Runs the verb as one of the ranks that were started together, as the launcher of --nproc, or alone. Returns the exit
// code. With several ranks, the failure of one rank ends all ranks.
int run_as_ranks(Invocation& invocation, const std::optional<RankEnvironment>& ranks,
                 const std::vector<std::string>& arguments);

// Runs the part of a verb that uses the other ranks. On GPUs, a failure of `work` ends all ranks here, before
// destructors run. The destructors would wait for collectives that never finish. `before_end` does the necessary
// clean-up and must not wait for other ranks.
int run_among_ranks(const Invocation& invocation, const std::function<int()>& work,
                    const std::function<void()>& before_end = {});

// Reports a failure outside of a world: the failure of a single process, or of a rank before it meets the other ranks.
// A rank that --nproc started gives its failure to the launcher of --nproc, which reports only one failure. A rank that
// mpirun or srun started reports its failure itself. If all these ranks have the same failure, usually only rank 0
// reports it: the other ranks wait first, and mpirun ends them meanwhile.
void report_failure(const Environment& environment, const Failure& failure);

}  // namespace tessera
