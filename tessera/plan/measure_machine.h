// Measures the speeds of this machine for predicted times: with the kernels, copies and collectives of a run.
#pragma once

#include <string>

#include "tessera/comm/communicator.h"
#include "tessera/device/counting/machine.h"
#include "tessera/device/device.h"

namespace tessera {

// Takes about a minute on a GPU. Collective. `host`: the memory of offloaded arrays, with the rank's threads. `folder`:
// where offloaded files would be; a file of 512 MiB is written there, or in the nearest folder that exists, and
// removed. `name`: of the device. `has_bf16`: whether a GPU computes in bf16 and tf32. `num_multiprocessors`: of a GPU,
// otherwise 0. If the world has more ranks than a node, its collectives use the links between nodes. The kernels'
// speeds are this rank's own; what the ranks of a node share has the rates of the slowest rank. Throws
// OutOfMemoryError.
Machine measure_machine(Device& device, Device& host, Communicator& world, int ranks_per_node, bool has_bf16,
                        int num_multiprocessors, std::string name, const std::string& folder);

}  // namespace tessera
