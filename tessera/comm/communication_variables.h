#pragma once

#include "tessera/base/process.h"

namespace tessera {

// The variables that configure the communication: NCCL_*, UCX_* and OMPI_MCA_*. Without those that Open MPI's launcher
// sets for its own use: addresses and keys of one start. A value whose name says that it is secret is "(set)".
Environment communication_variables(const Environment& environment);

}  // namespace tessera
