// How a verb runs: alone, as one of the ranks of a world, or as their launcher.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tessera/app/verbs.h"
#include "tessera/comm/world.h"

namespace tessera {

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
void report_failure(const Environment& environment, const Failure& failure);

}  // namespace tessera
