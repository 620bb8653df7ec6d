// Loops over one row, for the attention kernels.
#pragma once

#include <cstdint>

#include "tessera/ops/cpu/vector_math.h"

namespace tessera::cpu {

template <typename T>
inline T dot(const T* a, const T* b, int64_t count) {
  T sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t d = 0; d < count; ++d) sum += a[d] * b[d];
  return sum;
}

template <typename T>
inline void scale_row(T* x, int64_t count, T factor) {
#pragma omp simd
  for (int64_t d = 0; d < count; ++d) x[d] *= factor;
}

// x = exp(x − shift). Returns the sum of the new values.
template <typename T>
inline T exp_in_place(T* x, int64_t count, T shift) {
  T sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t j = 0; j < count; ++j) {
    x[j] = exp(x[j] - shift);
    sum += x[j];
  }
  return sum;
}

}  // namespace tessera::cpu
