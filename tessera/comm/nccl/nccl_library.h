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

  // Memory that ranks map into each other's address spaces. The functions are null in builds and with libraries of
  // NCCL before 2.28, whose collectives do not use copy engines.
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
  using Window = ncclWindow_t;
  static constexpr int kSymmetric = NCCL_WIN_COLL_SYMMETRIC;
#else
  using Window = void*;
  static constexpr int kSymmetric = 0;
#endif
  ncclResult_t (*mem_alloc)(void**, size_t) = nullptr;
  ncclResult_t (*mem_free)(void*) = nullptr;
  ncclResult_t (*window_register)(ncclComm_t, void*, size_t, Window*, int) = nullptr;
  ncclResult_t (*window_deregister)(ncclComm_t, Window) = nullptr;
  bool has_windows() const {
    return window_register != nullptr;
  }

  // Describes a result of these functions, with the last error of the process or of `comm`. `comm` may be null.
  std::string text_of(ncclResult_t result, ncclComm_t comm) const;
};

// Throws RunError if libnccl.so.2 cannot be opened or lacks a function.
const NcclLibrary& nccl_library();

}  // namespace tessera
