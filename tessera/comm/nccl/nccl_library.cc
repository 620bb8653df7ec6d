#include "tessera/comm/nccl/nccl_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include "tessera/base/error.h"

namespace tessera {
namespace {

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
  return nccl;
}

}  // namespace

const NcclLibrary& nccl_library() {
  static const NcclLibrary library = open_library();
  return library;
}

}  // namespace tessera
