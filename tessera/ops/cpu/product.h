// Matrix products of one thread, row-major: the tiles that the kernels share out among their threads.
#pragma once

#include <cstdint>

namespace tessera::cpu {

enum class Transpose : bool { no, yes };
enum class Result : bool { set, add };

// Elements of scratch that a product in T may use.
inline constexpr int64_t kProductScratchElems = 4 * 14 * 544 + 512 * 256;

// c [m, n] = or += op(a) [m, k] · op(b) [k, n], k > 0. ld* are the elements between rows as stored. In float on AVX-512 by
// register blocks written here, which come within a sixth of the processor's peak where OpenBLAS leaves a third; else by
// CBLAS.
void multiply(Transpose transpose_a, Transpose transpose_b, int64_t m, int64_t n, int64_t k, const float* a, int64_t lda,
              const float* b, int64_t ldb, Result result, float* c, int64_t ldc, float* scratch);
void multiply(Transpose transpose_a, Transpose transpose_b, int64_t m, int64_t n, int64_t k, const double* a, int64_t lda,
              const double* b, int64_t ldb, Result result, double* c, int64_t ldc, double* scratch);

// Tells the BLAS library of this process, whichever vendor's, to use one thread a call: the kernels bring their own
// threads, and a library's would spin beside them.
void use_one_blas_thread();

}  // namespace tessera::cpu
