// The machines of a run, for summary.json. A comparison of runs needs these values.
#pragma once

#include "tessera/base/record.h"
#include "tessera/comm/communicator.h"

namespace tessera {

// {"hosts": ["node1", "node2"], "cpus": ["AMD EPYC 7763"], "gpus": ["NVIDIA H200"]}: the names of all ranks' nodes, and
// the models of their processors and GPUs. Each list is sorted and has each name once. Only a run on GPUs has "gpus":
// the GPUs that its ranks see. Collective: every rank must call the function.
Record machine_record(Communicator& world, bool on_gpu);

}  // namespace tessera
