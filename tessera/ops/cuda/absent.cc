// Replaces the CUDA kernels in a build without CUDA. Such a build creates no CUDA devices, so make_cuda_kernels() never
// runs.
#include "tessera/ops/back_ends.h"

namespace tessera {

std::unique_ptr<Kernels> make_cuda_kernels(Device&, bool) {
  TESSERA_ASSERT(!"this build has no CUDA kernels");
  return nullptr;
}

std::string cublas_lt_description() {
  return "not in this build";
}

}  // namespace tessera
