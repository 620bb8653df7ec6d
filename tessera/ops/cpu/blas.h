// Matrix products of one thread. Row-major throughout.
#pragma once

#include <cstdint>

namespace tessera::cpu {

enum class Transpose : bool { no, yes };

// c [m, n] = alpha · op(a) [m, k] · op(b) [k, n] + beta · c; with beta = 0 the contents of c do not matter. ld* are the
// elements between rows as stored.
void gemm(Transpose transpose_a, Transpose transpose_b, int64_t m, int64_t n, int64_t k, float alpha, const float* a,
          int64_t lda, const float* b, int64_t ldb, float beta, float* c, int64_t ldc);
void gemm(Transpose transpose_a, Transpose transpose_b, int64_t m, int64_t n, int64_t k, double alpha, const double* a,
          int64_t lda, const double* b, int64_t ldb, double beta, double* c, int64_t ldc);

// Tells the BLAS library of this process, whichever vendor's, to use one thread a call: the kernels bring their own
// threads, and a library's would spin beside them.
void use_one_blas_thread();

}  // namespace tessera::cpu
