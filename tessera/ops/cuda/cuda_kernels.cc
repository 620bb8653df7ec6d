#include "tessera/ops/cuda/cuda_kernels.h"

namespace tessera {
namespace cuda {
namespace {

static_assert(kScratchBytes + kProductWorkspaceBytes == kCudaWorkspaceBytes);

int attribute(cudaDeviceAttr which) {
  int device = 0, value = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&value, which, device), "cudaDeviceGetAttribute");
  return value;
}

}  // namespace

CudaKernels::CudaKernels(Device& device, bool allow_tf32, int code_major)
    : workspace_(device.allocate(kCudaWorkspaceBytes, Category::workspace)),
      context_{.stream = static_cast<cudaStream_t>(device.compute_stream().native()),
               .scratch = workspace_.data(),
               .num_multiprocessors = attribute(cudaDevAttrMultiProcessorCount),
               .code_major = code_major,
               .max_shared_bytes = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin),
               .has_wgmma = code_major == 9 && attribute(cudaDevAttrComputeCapabilityMajor) == 9 &&
                            attribute(cudaDevAttrComputeCapabilityMinor) == 0},
      products_(context_, workspace_.data() + kScratchBytes, allow_tf32) {}

}  // namespace cuda

std::unique_ptr<Kernels> make_cuda_kernels(Device& device, bool allow_tf32) {
  TESSERA_ASSERT(device.kind() == DeviceKind::cuda);
  return std::make_unique<cuda::CudaKernels>(device, allow_tf32, cuda::code_major_for_this_gpu());
}

}  // namespace tessera
