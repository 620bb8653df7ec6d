// Steps that the ranks of a world take together. They succeed on all ranks or on none.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tessera/comm/communicator.h"

namespace tessera {

// Runs `work` on this rank. Returns the results of all ranks, in rank order, on every rank. If `work` throws on any
// rank, every rank throws an error of the same kind as the first of these ranks. The error names that rank. Collective:
// exactly one exchange, also in case of an error. `work` must not communicate, because a rank that fails would leave
// the others waiting. A world of one rank throws what `work` throws. `what` as in Communicator.
std::vector<std::string> on_all_ranks(Communicator& world, const char* what, const std::function<std::string()>& work);

}  // namespace tessera
