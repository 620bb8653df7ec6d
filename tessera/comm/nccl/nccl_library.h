// The functions of NCCL's library. The first call of nccl_library() opens the library. The program is not linked to it
// and therefore also starts on machines without NCCL.
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

// Throws RunError if libnccl.so.2 cannot be opened or lacks a function.
const NcclLibrary& nccl_library();

}  // namespace tessera
