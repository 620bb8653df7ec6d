#pragma once

#include "tessera/base/process.h"

namespace tessera {

// The variables that configure the communication: NCCL_*, UCX_* and OMPI_MCA_*. Omits the variables that Open MPI's
// launcher sets for its own use, such as the addresses and keys of one launch. If a variable's name indicates a secret,
// its value is "(set)".
Environment communication_variables(const Environment& environment);

}  // namespace tessera
