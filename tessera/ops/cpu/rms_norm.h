// The steps of the root mean square norm for one row. The norms of attention heads (rotary.cc) use them too.
#pragma once

#include <cmath>
#include <cstdint>

namespace tessera::cpu {

template <typename T>
inline T rms_rstd(const T* x, int64_t channels, T epsilon) {
  T squares = 0;
#pragma omp simd reduction(+ : squares)
  for (int64_t c = 0; c < channels; ++c) squares += x[c] * x[c];
  return T(1) / std::sqrt(squares / static_cast<T>(channels) + epsilon);
}

// y may be x.
template <typename T>
inline void rms_scale(const T* x, const T* weight, int64_t channels, T rstd, T* y) {
#pragma omp simd
  for (int64_t c = 0; c < channels; ++c) y[c] = x[c] * rstd * weight[c];
}

// With x̂ = x·rstd and g = d_y∘weight:
//   d_x = residual + rstd·(g − x̂·Σ(g∘x̂)/C);   d_weight += d_y∘x̂
// d_x may be d_y or residual. If residual is null, its term is left out.
template <typename T>
inline void rms_backward(const T* d_y, const T* x, const T* weight, T rstd, const T* residual, int64_t channels, T* d_x,
                         T* d_weight) {
  T sum_gx = 0;
#pragma omp simd reduction(+ : sum_gx)
  for (int64_t c = 0; c < channels; ++c) {
    const T normal = x[c] * rstd;
    sum_gx += d_y[c] * weight[c] * normal;
    d_weight[c] += d_y[c] * normal;
  }
  const T mean_gx = sum_gx / static_cast<T>(channels);
  auto gradient = [&](int64_t c) { return rstd * (d_y[c] * weight[c] - x[c] * rstd * mean_gx); };
  if (residual) {
#pragma omp simd
    for (int64_t c = 0; c < channels; ++c) d_x[c] = residual[c] + gradient(c);
  } else {
#pragma omp simd
    for (int64_t c = 0; c < channels; ++c) d_x[c] = gradient(c);
  }
}

}  // namespace tessera::cpu
