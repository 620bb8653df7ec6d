// Layer norm over the last dimension.
#include <algorithm>
#include <cmath>

#include "tessera/ops/cpu/cpu_kernels.h"
#include "tessera/ops/cpu/dispatch.h"
#include "tessera/ops/cpu/row_sums.h"

namespace tessera::cpu {

namespace {

constexpr int64_t kGrainRows = 4;

// mean = Σx / C, variance = Σ(x − mean)² / C in two passes. This avoids cancellation, and the row stays in L1 between
// the passes.
template <typename T>
void normalize_row(const T* x, const T* weight, const T* bias, int64_t channels, T epsilon, T* y, T* stats) {
  T sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t c = 0; c < channels; ++c) sum += x[c];
  const T mean = sum / static_cast<T>(channels);
  T squares = 0;
#pragma omp simd reduction(+ : squares)
  for (int64_t c = 0; c < channels; ++c) squares += (x[c] - mean) * (x[c] - mean);
  const T rstd = T(1) / std::sqrt(squares / static_cast<T>(channels) + epsilon);
#pragma omp simd
  for (int64_t c = 0; c < channels; ++c) y[c] = (x[c] - mean) * rstd * weight[c] + bias[c];
  if (stats) {
    stats[0] = mean;
    stats[1] = rstd;
  }
}

// With x̂ = (x − mean)·rstd and g = d_y∘weight:
//   d_x = residual + rstd·(g − Σg/C − x̂·Σ(g∘x̂)/C);   d_weight += d_y∘x̂;   d_bias += d_y;   y as in normalize_row
template <typename T>
void backward_row(const T* d_y, const T* x, const T* weight, const T* bias, T mean, T rstd, const T* residual,
                  int64_t channels, T* d_x, T* d_weight, T* d_bias, T* y) {
  T sum_g = 0, sum_gx = 0;
#pragma omp simd reduction(+ : sum_g, sum_gx)
  for (int64_t c = 0; c < channels; ++c) {
    const T g = d_y[c] * weight[c], normal = (x[c] - mean) * rstd;
    sum_g += g;
    sum_gx += g * normal;
    d_weight[c] += d_y[c] * normal;
    d_bias[c] += d_y[c];
  }
  const T mean_g = sum_g / static_cast<T>(channels), mean_gx = sum_gx / static_cast<T>(channels);
  auto gradient = [&](int64_t c) { return rstd * (d_y[c] * weight[c] - mean_g - (x[c] - mean) * rstd * mean_gx); };
  if (residual) {
#pragma omp simd
    for (int64_t c = 0; c < channels; ++c) d_x[c] = residual[c] + gradient(c);
  } else {
#pragma omp simd
    for (int64_t c = 0; c < channels; ++c) d_x[c] = gradient(c);
  }
  if (!y) return;
#pragma omp simd
  for (int64_t c = 0; c < channels; ++c) y[c] = (x[c] - mean) * rstd * weight[c] + bias[c];
}

}  // namespace

void CpuKernels::layer_norm_forward(const NormForward& call) {
  const int64_t rows = call.x.shape[0], channels = call.x.shape[1];
  TESSERA_ASSERT(call.y.shape == call.x.shape && call.weight.num_elems() == channels &&
                 call.bias.num_elems() == channels);
  TESSERA_ASSERT(!call.stats || call.stats.shape == (Shape{rows, 2}));
  with_float_type(call.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    team_.for_ranges(rows, kGrainRows, [&](int64_t, int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        normalize_row(call.x.as<T>() + row * channels, call.weight.as<T>(), call.bias.as<T>(), channels,
                      static_cast<T>(call.epsilon), call.y.as<T>() + row * channels,
                      call.stats ? call.stats.as<T>() + row * 2 : nullptr);
      }
    });
  });
}

void CpuKernels::layer_norm_backward(const NormBackward& call) {
  const int64_t rows = call.x.shape[0], channels = call.x.shape[1];
  TESSERA_ASSERT(call.d_y.shape == call.x.shape && call.d_x.shape == call.x.shape &&
                 call.weight.num_elems() == channels);
  TESSERA_ASSERT(call.stats.shape == (Shape{rows, 2}) && (!call.residual || call.residual.shape == call.x.shape));
  TESSERA_ASSERT(call.d_weight.num_elems() == channels && call.d_bias.num_elems() == channels);
  TESSERA_ASSERT(!call.y || (call.y.shape == call.x.shape && call.bias.num_elems() == channels));
  with_float_type(call.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    // Adds the rows of a block to `sums`: [0, channels) is for d_weight, [channels, 2 · channels) for d_bias.
    const auto add_block = [&](int64_t first, int64_t end, T* sums) {
      for (int64_t row = first; row < end; ++row) {
        const int64_t at = row * channels;
        const T* row_stats = call.stats.as<T>() + row * 2;
        backward_row(call.d_y.as<T>() + at, call.x.as<T>() + at, call.weight.as<T>(),
                     call.y ? call.bias.as<T>() : nullptr, row_stats[0], row_stats[1],
                     call.residual ? call.residual.as<T>() + at : nullptr, channels, call.d_x.as<T>() + at, sums,
                     sums + channels, call.y ? call.y.as<T>() + at : nullptr);
      }
    };
    sum_in_blocks<T>(team_, rows, 2 * channels, add_block, [&](int64_t begin, int64_t end, const T* sums) {
      add_elements(sums, begin, std::min(end, channels), call.d_weight.as<T>());
      add_elements(sums + channels, std::max(begin, channels) - channels, end - channels, call.d_bias.as<T>());
    });
  });
}

}  // namespace tessera::cpu
