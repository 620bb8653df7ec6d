// cuBLASLt, loaded when it is first needed, so that the program also starts without NVIDIA libraries.
#pragma once

#include <cublasLt.h>

namespace tessera::cuda {

// The functions of the library that Tessera uses.
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

// The library, in the major version of the header that Tessera was compiled with. It comes from the loader's search
// path or the toolkit's usual folder. The first call loads it, and it stays loaded. Throws a RunError that names the
// missing library.
const CublasLt& cublas_lt();

// Throws an error if `status` is not success: OutOfMemoryError if GPU memory is missing, otherwise RunError. The error
// names the call.
void check(cublasStatus_t status, const char* call);

}  // namespace tessera::cuda
