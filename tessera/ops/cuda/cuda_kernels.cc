#include "tessera/ops/cuda/cuda_kernels.h"

#include <fmt/format.h>

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

std::string CudaKernels::refusal_of_float8() const {
  const int major = attribute(cudaDevAttrComputeCapabilityMajor), minor = attribute(cudaDevAttrComputeCapabilityMinor);
  if (major != 9 || minor != 0) {
    return fmt::format(
        "fp8 needs a GPU with compute capability 9.0 (H100, H200, GH200), whose cuBLASLt has products with a scale for "
        "128 values. This GPU has {}.{}",
        major, minor);
  }
  constexpr size_t kFirstVersion = 120900;
  if (CUBLAS_VERSION < kFirstVersion) return "fp8 needs cuBLASLt 12.9, but the program was compiled for an older one";
  if (cublas_lt().version() >= kFirstVersion) return "";
  return fmt::format("fp8 needs cuBLASLt 12.9 or newer, but this machine has {}", cublas_lt_description());
}

}  // namespace cuda

std::unique_ptr<Kernels> make_cuda_kernels(Device& device, bool allow_tf32) {
  TESSERA_ASSERT(device.kind() == DeviceKind::cuda);
  return std::make_unique<cuda::CudaKernels>(device, allow_tf32, cuda::code_major_for_this_gpu());
}

}  // namespace tessera
