// Replaces the CUDA kernels if the build machine has no CUDA toolkit. Such a build has no CUDA device either.
#include "tessera/ops/cuda/cuda_kernels.h"

namespace tessera {

std::unique_ptr<Kernels> make_cuda_kernels(Device&, bool) {
  TESSERA_ASSERT(!"a CUDA device in a program without CUDA");
  return nullptr;
}

std::string cublas_lt_description() {
  return "not in this build";
}

}  // namespace tessera
