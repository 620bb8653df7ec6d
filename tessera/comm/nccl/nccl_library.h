// NCCL, opened when the first group is made. A program that was built with NCCL's header also starts on machines
// without the library.
#pragma once

#include <nccl.h>

#include <string>

namespace tessera {

struct NcclLibrary {
  decltype(&ncclGetUniqueId) get_unique_id;
  decltype(&ncclCommInitRankConfig) comm_init_rank;
  decltype(&ncclCommAbort) comm_abort;
  decltype(&ncclCommDestroy) comm_destroy;
  decltype(&ncclCommGetAsyncError) comm_async_error;
  decltype(&ncclGetErrorString) error_string;
  decltype(&ncclGetLastError) last_error;
  decltype(&ncclAllGather) all_gather;
  decltype(&ncclReduceScatter) reduce_scatter;
  decltype(&ncclAllReduce) all_reduce;
  decltype(&ncclBroadcast) broadcast;
  decltype(&ncclGetVersion) version;
};

// Throws RunError: libnccl.so.2 is missing, or lacks a function.
const NcclLibrary& nccl_library();

}  // namespace tessera
