// Products in float by AVX-512 register blocks. Source of the scheme: Goto & van de Geijn, "Anatomy of High-Performance
// Matrix Multiplication", ACM TOMS 34(3), 2008.
#pragma once

#include "tessera/ops/cpu/product.h"

namespace tessera::cpu {

#if defined(__AVX512F__)
// As multiply() into c, or as multiply_then() when there is a continuation; c is then null.
void packed_product(const Factors<float>& factors, Result result, float* c, int64_t ldc,
                    const Continuation<float>* continuation, float* scratch);
#endif

}  // namespace tessera::cpu
