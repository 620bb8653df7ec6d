// What must be equal on all ranks of a run, and in a run and its checkpoint.
#pragma once

#include <string>
#include <vector>

#include "tessera/base/record.h"
#include "tessera/comm/communicator.h"
#include "tessera/data/samples.h"

namespace tessera {

// A checksum of the tokens and targets of all samples. If the samples have checksums, it is computed from them, and has
// another value than for the same samples without checksums.
std::string checksum_of(const Samples& samples);
// All ranks must have the same fingerprint. Otherwise every rank throws a UsageError that names the key and a rank with
// a different value. Collective.
void check_ranks_agree(Communicator& world, const Record& fingerprint);

}  // namespace tessera
