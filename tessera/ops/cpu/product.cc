#include "tessera/ops/cpu/product.h"

#include <cblas.h>
#include <dlfcn.h>

#include <initializer_list>

#include "tessera/ops/cpu/packed_product.h"

namespace tessera::cpu {

namespace {

CBLAS_TRANSPOSE cblas(Transpose transpose) { return transpose == Transpose::yes ? CblasTrans : CblasNoTrans; }

}  // namespace

void multiply(Transpose transpose_a, Transpose transpose_b, int64_t m, int64_t n, int64_t k, const float* a, int64_t lda,
              const float* b, int64_t ldb, Result result, float* c, int64_t ldc, [[maybe_unused]] float* scratch) {
#if defined(__AVX512F__)
  packed_product(transpose_a, transpose_b, m, n, k, a, lda, b, ldb, result, c, ldc, scratch);
#else
  cblas_sgemm(CblasRowMajor, cblas(transpose_a), cblas(transpose_b), static_cast<int>(m), static_cast<int>(n),
              static_cast<int>(k), 1, a, static_cast<int>(lda), b, static_cast<int>(ldb), result == Result::add ? 1 : 0,
              c, static_cast<int>(ldc));
#endif
}

void multiply(Transpose transpose_a, Transpose transpose_b, int64_t m, int64_t n, int64_t k, const double* a, int64_t lda,
              const double* b, int64_t ldb, Result result, double* c, int64_t ldc, double*) {
  cblas_dgemm(CblasRowMajor, cblas(transpose_a), cblas(transpose_b), static_cast<int>(m), static_cast<int>(n),
              static_cast<int>(k), 1, a, static_cast<int>(lda), b, static_cast<int>(ldb), result == Result::add ? 1 : 0,
              c, static_cast<int>(ldc));
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
