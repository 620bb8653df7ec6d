// Matrix products of f32 factors with AVX-512. While a block of the result is computed, its sums stay in registers.
// Source of the scheme: Goto & van de Geijn, "Anatomy of High-Performance Matrix Multiplication", ACM TOMS 34(3), 2008.
#pragma once

#include "tessera/ops/cpu/product.h"

namespace tessera::cpu {

#if defined(__AVX512F__)
// Does the same as multiply() if `continuation` is null, and otherwise the same as multiply_then(). With a
// continuation, `result` must be Result::set, and c and ldc are ignored.
void packed_product(const Factors<float>& factors, Result result, float* c, int64_t ldc,
                    const Continuation<float>* continuation, float* scratch);

// pack_factor() does the same as pack(). product_with_packed() does the same as multiply_packed().
Packed<float> pack_factor(Transpose transpose, int64_t depth, int64_t columns, const float* b, int64_t ldb,
                          float* room);
void product_with_packed(int64_t m, int64_t columns, int64_t depth, const float* a, int64_t lda, const Packed<float>& b,
                         Result result, float* c, int64_t ldc, float* scratch);
#endif

}  // namespace tessera::cpu
