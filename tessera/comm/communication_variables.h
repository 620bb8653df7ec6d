#pragma once

#include "tessera/base/process.h"

namespace tessera {

// The variables that configure the communication: NCCL_*, UCX_* and OMPI_MCA_*. Variables that Open MPI's launcher sets
// for its own use, such as addresses and keys of one start, are left out. A value whose name says that it is secret is
// "(set)".
Environment communication_variables(const Environment& environment);

}  // namespace tessera
