// Products in float by AVX-512 register blocks. Source of the scheme: Goto & van de Geijn, "Anatomy of High-Performance
// Matrix Multiplication", ACM TOMS 34(3), 2008.
#pragma once

#include "tessera/ops/cpu/product.h"

namespace tessera::cpu {

#if defined(__AVX512F__)
// As multiply().
void packed_product(Transpose transpose_a, Transpose transpose_b, int64_t m, int64_t n, int64_t k, const float* a,
                    int64_t lda, const float* b, int64_t ldb, Result result, float* c, int64_t ldc, float* scratch);
#endif

}  // namespace tessera::cpu
