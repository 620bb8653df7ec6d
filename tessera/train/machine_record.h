// The machines of a run, for summary.json. A comparison of runs needs these values.
#pragma once

#include "tessera/comm/communicator.h"
#include "tessera/report/record.h"

namespace tessera {

// {"hosts": ["node1", "node2"], "cpus": ["AMD EPYC 7763"], "gpus": ["NVIDIA H200"]}: the distinct names on all ranks,
// sorted. Only a run on GPUs has "gpus": the GPUs that its ranks see. Collective.
Record machine_record(Communicator& world, bool on_gpu);

}  // namespace tessera
