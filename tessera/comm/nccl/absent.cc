// Used by builds without NCCL.
#include "tessera/base/error.h"
#include "tessera/comm/nccl/nccl_communicator.h"

namespace tessera {

std::unique_ptr<Communicator> make_nccl_communicator(std::unique_ptr<Communicator> host, int,
                                                     std::shared_ptr<NcclMemory>, const WatchOptions&) {
  if (host->size() == 1) return host;
  throw RunError("NCCL", "this program was built without it", "Build Tessera on a machine with nccl.h, or use one GPU");
}

std::string nccl_description() {
  return "not in this build";
}

}  // namespace tessera
