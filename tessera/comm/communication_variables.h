#pragma once

#include "tessera/base/process.h"

namespace tessera {

// Returns the variables of `environment` that configure the communication: NCCL_*, UCX_* and OMPI_MCA_*. Omits the
// variables that Open MPI's launcher sets for its own use. They hold, for example, addresses and keys of one launch. If
// the name of a variable contains TOKEN, KEY or PASSWORD, its value in the result is "(set)".
Environment communication_variables(const Environment& environment);

}  // namespace tessera
