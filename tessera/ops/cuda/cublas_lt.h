// The library cuBLASLt, loaded at its first use. The program can therefore start on a machine without NVIDIA libraries.
#pragma once

#include <cublasLt.h>

namespace tessera::cuda {

// The functions of cuBLASLt that Tessera uses.
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

// Returns the functions of the library. The first call loads the library, which then stays loaded. The library must
// have the major version of the header that Tessera was compiled with. The first call searches for this version in the
// loader's search path, then in /usr/local/cuda/lib64. Throws RunError if the library or one of the functions is
// missing.
const CublasLt& cublas_lt();

// Throws an error if `status` is not CUBLAS_STATUS_SUCCESS: OutOfMemoryError if the GPU had no free memory, otherwise
// RunError. The error names `call`.
void check(cublasStatus_t status, const char* call);

}  // namespace tessera::cuda
