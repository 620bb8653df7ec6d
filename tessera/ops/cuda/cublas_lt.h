// cuBLASLt, loaded when the first CUDA kernels are made, so that the program also starts without NVIDIA libraries.
#pragma once

#include <cublasLt.h>

namespace tessera::cuda {

// The library functions that Tessera uses, by their names in the library.
struct CublasLt {
  decltype(&::cublasLtCreate) create;
  decltype(&::cublasLtDestroy) destroy;
  decltype(&::cublasLtMatmul) matmul;
  decltype(&::cublasLtMatmulAlgoGetHeuristic) get_heuristic;
  decltype(&::cublasLtMatmulDescCreate) desc_create;
  decltype(&::cublasLtMatmulDescDestroy) desc_destroy;
  decltype(&::cublasLtMatmulDescSetAttribute) desc_set;
  decltype(&::cublasLtMatrixLayoutCreate) layout_create;
  decltype(&::cublasLtMatrixLayoutDestroy) layout_destroy;
  decltype(&::cublasLtMatmulPreferenceCreate) preference_create;
  decltype(&::cublasLtMatmulPreferenceDestroy) preference_destroy;
  decltype(&::cublasLtMatmulPreferenceSetAttribute) preference_set;
  decltype(&::cublasLtGetStatusString) status_string;
  decltype(&::cublasLtGetVersion) version;
};

// The library of the version compiled against, from the loader's search path or the toolkit's usual folder. Throws
// RunError that names the missing library. Loaded once; stays loaded.
const CublasLt& cublas_lt();

// Throws RunError naming the call, or OutOfMemoryError.
void check(cublasStatus_t status, const char* call);

}  // namespace tessera::cuda
