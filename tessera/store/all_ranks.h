// Steps that the ranks of a world take together and that succeed on all of them or on none.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tessera/comm/communicator.h"

namespace tessera {

// Runs `work` on this rank and returns what it returned on every rank, by rank. If it throws on any, every rank throws
// the same error instead, of the same kind: that of the first such rank, which it names. Collective, with exactly one
// exchange whatever happens; `work` itself must not communicate, or a rank that fails would leave the others waiting.
// A world of one throws what `work` throws. `what` as in Communicator.
std::vector<std::string> on_all_ranks(Communicator& world, const char* what, const std::function<std::string()>& work);

}  // namespace tessera
