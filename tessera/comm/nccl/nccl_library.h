// The functions of NCCL's library. The first call of nccl_library() opens the library. The program is not linked to it
// and therefore also starts on machines without NCCL.
#pragma once

#include <nccl.h>

#include <string>

namespace tessera {

// Memory that ranks have mapped, and the flag for it.
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
using NcclWindow = ncclWindow_t;
inline constexpr int kNcclSymmetric = NCCL_WIN_COLL_SYMMETRIC;
#else
using NcclWindow = void*;
inline constexpr int kNcclSymmetric = 0;
#endif

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

  // Memory that ranks map into each other's address spaces. These functions are null if the program was built with NCCL
  // before 2.28, or has opened such a library: their collectives do not use copy engines.
  ncclResult_t (*mem_alloc)(void**, size_t) = nullptr;
  ncclResult_t (*mem_free)(void*) = nullptr;
  ncclResult_t (*window_register)(ncclComm_t, void*, size_t, NcclWindow*, int) = nullptr;
  ncclResult_t (*window_deregister)(ncclComm_t, NcclWindow) = nullptr;
  bool has_windows() const { return window_register != nullptr; }

  // Describes a result of these functions, with the last error of the process or of `comm`. `comm` may be null.
  std::string text_of(ncclResult_t result, ncclComm_t comm) const;
};

// Throws RunError if libnccl.so.2 cannot be opened or lacks a function.
const NcclLibrary& nccl_library();

}  // namespace tessera
