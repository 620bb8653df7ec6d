#include "tessera/comm/nccl/nccl_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include "tessera/base/error.h"

namespace tessera {
namespace {

constexpr int kFirstWithWindows = 22800;  // 2.28.0

NcclLibrary open_library() {
  void* library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  const char* remedy = "Install NCCL, or put the folder of libnccl.so.2 into LD_LIBRARY_PATH";
  if (!library) throw RunError("NCCL", fmt::format("cannot be opened: {}", dlerror()), remedy);
  const auto find = [&]<typename Function>(Function& function, const char* name) {
    function = reinterpret_cast<Function>(dlsym(library, name));
    if (!function) throw RunError("libnccl.so.2", fmt::format("has no {}", name), remedy);
  };
  NcclLibrary nccl;
  find(nccl.get_unique_id, "ncclGetUniqueId");
  find(nccl.comm_init_rank, "ncclCommInitRankConfig");
  find(nccl.comm_abort, "ncclCommAbort");
  find(nccl.comm_destroy, "ncclCommDestroy");
  find(nccl.comm_async_error, "ncclCommGetAsyncError");
  find(nccl.error_string, "ncclGetErrorString");
  find(nccl.last_error, "ncclGetLastError");
  find(nccl.all_gather, "ncclAllGather");
  find(nccl.reduce_scatter, "ncclReduceScatter");
  find(nccl.all_reduce, "ncclAllReduce");
  find(nccl.broadcast, "ncclBroadcast");
  find(nccl.version, "ncclGetVersion");
  int version = 0;
  nccl.version(&version);
  if (NCCL_VERSION_CODE >= kFirstWithWindows && version >= kFirstWithWindows) {
    find(nccl.mem_alloc, "ncclMemAlloc");
    find(nccl.mem_free, "ncclMemFree");
    find(nccl.window_register, "ncclCommWindowRegister");
    find(nccl.window_deregister, "ncclCommWindowDeregister");
  }
  return nccl;
}

}  // namespace

std::string NcclLibrary::text_of(ncclResult_t result, ncclComm_t comm) const {
  const char* last = last_error(comm);
  return fmt::format("NCCL has failed: {}{}{}", error_string(result), last && *last ? ": " : "", last ? last : "");
}

const NcclLibrary& nccl_library() {
  static const NcclLibrary library = open_library();
  return library;
}

}  // namespace tessera
