#include "tessera/ops/cpu/blas.h"

#include <cblas.h>
#include <dlfcn.h>

#include <initializer_list>

namespace tessera::cpu {

namespace {

CBLAS_TRANSPOSE cblas(Transpose transpose) { return transpose == Transpose::yes ? CblasTrans : CblasNoTrans; }

}  // namespace

void gemm(Transpose transpose_a, Transpose transpose_b, int64_t m, int64_t n, int64_t k, float alpha, const float* a,
          int64_t lda, const float* b, int64_t ldb, float beta, float* c, int64_t ldc) {
  cblas_sgemm(CblasRowMajor, cblas(transpose_a), cblas(transpose_b), static_cast<int>(m), static_cast<int>(n),
              static_cast<int>(k), alpha, a, static_cast<int>(lda), b, static_cast<int>(ldb), beta, c,
              static_cast<int>(ldc));
}

void gemm(Transpose transpose_a, Transpose transpose_b, int64_t m, int64_t n, int64_t k, double alpha, const double* a,
          int64_t lda, const double* b, int64_t ldb, double beta, double* c, int64_t ldc) {
  cblas_dgemm(CblasRowMajor, cblas(transpose_a), cblas(transpose_b), static_cast<int>(m), static_cast<int>(n),
              static_cast<int>(k), alpha, a, static_cast<int>(lda), b, static_cast<int>(ldb), beta, c,
              static_cast<int>(ldc));
}

void use_one_blas_thread() {
  // A library that offers none of these (the reference BLAS) has no threads. BLIS counts in its 64-bit dim_t.
  for (const char* name : {"openblas_set_num_threads", "MKL_Set_Num_Threads"}) {
    if (void* function = dlsym(RTLD_DEFAULT, name)) reinterpret_cast<void (*)(int)>(function)(1);
  }
  if (void* function = dlsym(RTLD_DEFAULT, "bli_thread_set_num_threads")) {
    reinterpret_cast<void (*)(int64_t)>(function)(1);
  }
}

}  // namespace tessera::cpu
