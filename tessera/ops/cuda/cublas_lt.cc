#include "tessera/ops/cuda/cublas_lt.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include "tessera/device/cuda/cuda_check.h"
#include "tessera/ops/back_ends.h"

namespace tessera::cuda {
namespace {

void* open_library() {
  const std::string name = fmt::format("libcublasLt.so.{}", CUBLAS_VER_MAJOR);
  for (const std::string& path : {name, "/usr/local/cuda/lib64/" + name}) {
    if (void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
  }
  throw RunError("CUDA", fmt::format("{} was not found: {}", name, dlerror()),
                 fmt::format("Install CUDA {}'s libraries, or add their folder to LD_LIBRARY_PATH", CUBLAS_VER_MAJOR));
}

template <typename Function>
void find(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(library, name));
  if (!function) {
    throw RunError("CUDA", fmt::format("libcublasLt has no function {}", name),
                   fmt::format("Install CUDA {}'s libraries", CUBLAS_VER_MAJOR));
  }
}

CublasLt load() {
  void* const library = open_library();
  CublasLt lt;
  find(library, "cublasLtCreate", lt.create);
  find(library, "cublasLtDestroy", lt.destroy);
  find(library, "cublasLtMatmul", lt.matmul);
  find(library, "cublasLtMatmulAlgoGetHeuristic", lt.get_heuristic);
  find(library, "cublasLtMatmulDescCreate", lt.desc_create);
  find(library, "cublasLtMatmulDescDestroy", lt.desc_destroy);
  find(library, "cublasLtMatmulDescSetAttribute", lt.desc_set);
  find(library, "cublasLtMatrixLayoutCreate", lt.layout_create);
  find(library, "cublasLtMatrixLayoutDestroy", lt.layout_destroy);
  find(library, "cublasLtMatmulPreferenceCreate", lt.preference_create);
  find(library, "cublasLtMatmulPreferenceDestroy", lt.preference_destroy);
  find(library, "cublasLtMatmulPreferenceSetAttribute", lt.preference_set);
  find(library, "cublasLtGetStatusString", lt.status_string);
  find(library, "cublasLtGetVersion", lt.version);
  return lt;
}

}  // namespace

const CublasLt& cublas_lt() {
  static const CublasLt lt = load();
  return lt;
}

void check(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  if (status == CUBLAS_STATUS_ALLOC_FAILED) {
    throw OutOfMemoryError("GPU memory", fmt::format("{} failed: the GPU has no free memory", call), kNoMemoryRemedy);
  }
  throw RunError("CUDA", fmt::format("{} failed: {}", call, cublas_lt().status_string(status)),
                 "Set the environment variable CUBLASLT_LOG_LEVEL=2 and run again to see the reason");
}

}  // namespace tessera::cuda

std::string tessera::cublas_lt_description() {
  try {
    const size_t version = cuda::cublas_lt().version();  // 13.1.0 is 130100
    return fmt::format("{}.{}.{}", version / 10000, version % 10000 / 100, version % 100);
  } catch (const Error& error) {
    return error.what();
  }
}
