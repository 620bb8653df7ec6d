// What must be equal on all ranks of a run, and in a run and its checkpoint.
#pragma once

#include <string>
#include <vector>

#include "tessera/base/record.h"
#include "tessera/comm/communicator.h"
#include "tessera/data/prompts.h"

namespace tessera {

// A checksum of the tokens and targets of all samples.
std::string checksum_of(const std::vector<Sample>& samples);
// All ranks must have the same fingerprint. Otherwise every rank throws a UsageError that names the key and a rank with
// a different value. Collective.
void check_ranks_agree(Communicator& world, const Record& fingerprint);

}  // namespace tessera
