#include "tessera/ops/cuda/tensor_map.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "tessera/device/cuda/cuda_check.h"

namespace tessera::cuda {
namespace {

// Returns the driver's function cuTensorMapEncodeTiled(). The program does not link with the driver's library, because
// machines without a GPU lack it.
auto find_encode() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
  check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found),
        "cudaGetDriverEntryPointByVersion");
#else
  check(cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &function, cudaEnableDefault, &found),
        "cudaGetDriverEntryPoint");
#endif
  if (found != cudaDriverEntryPointSuccess || !function) {
    throw RunError("GPU", "the driver has no function cuTensorMapEncodeTiled", "Install a driver for CUDA 12 or later");
  }
  return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function);
}

}  // namespace

CUtensorMap map_of_heads(View array, int64_t heads, int64_t head_dim, int64_t row_elems, int rows) {
  static const auto encode = find_encode();
  TESSERA_ASSERT(size_of(array.dtype) == 2 && head_dim % 8 == 0 && row_elems % 8 == 0);
  constexpr cuuint32_t kElemBytes = 2;
  const cuuint64_t sizes[] = {static_cast<cuuint64_t>(head_dim), static_cast<cuuint64_t>(heads),
                              static_cast<cuuint64_t>(array.shape[0])},
                   strides[] = {static_cast<cuuint64_t>(head_dim) * kElemBytes,
                                static_cast<cuuint64_t>(row_elems) * kElemBytes};  // of heads and rows, in bytes
  const cuuint32_t box[] = {64, 1, static_cast<cuuint32_t>(rows)}, steps[] = {1, 1, 1};
  CUtensorMap map;
  const CUresult result =
      encode(&map, array.dtype == DType::f16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3,
             array.data, sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) {
    throw RunError(
        "GPU",
        fmt::format("cuTensorMapEncodeTiled failed with the driver's error {}, for {} rows of {} heads of {} elements",
                    static_cast<int>(result), array.shape[0], heads, head_dim));
  }
  return map;
}

}  // namespace tessera::cuda
