// Work that all ranks of a world do together. It succeeds on all ranks or on none.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tessera/comm/communicator.h"

namespace tessera {

// Runs `work` on this rank. Returns the results of all ranks, in rank order, on every rank. If `work` throws on some
// ranks, every rank throws the error of the lowest of these ranks, with the same type. The message names that rank.
// Collective: exactly one exchange, also in case of an error. `work` must not communicate, because a rank that fails
// would leave the others waiting. In a world of one rank, the function throws what `work` throws. `what`: see
// Communicator.
std::vector<std::string> on_all_ranks(Communicator& world, const char* what, const std::function<std::string()>& work);

}  // namespace tessera
