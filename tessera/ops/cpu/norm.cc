#include "tessera/ops/cpu/norm.h"

#include <cmath>

#include "tessera/ops/cpu/dispatch.h"

namespace tessera::cpu {

namespace {

constexpr int64_t kGrainRows = 4;
constexpr int64_t kSumRows = 64;  // rows whose parameter gradients are summed together
constexpr int64_t kColumnMultiple = 256;

// mean = Σx / C, variance = Σ(x − mean)² / C in two passes. This avoids cancellation, and the row stays in L1 between
// them.
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

// sum += x over columns [begin, end).
template <typename T>
void add_range(const T* x, int64_t begin, int64_t end, T* sum) {
#pragma omp simd
  for (int64_t c = begin; c < end; ++c) sum[c] += x[c];
}

}  // namespace

void layer_norm_forward(Team& team, View x, View weight, View bias, double epsilon, View y, View stats) {
  const int64_t rows = x.shape[0], channels = x.shape[1];
  TESSERA_ASSERT(y.shape == x.shape && weight.num_elems() == channels && bias.num_elems() == channels);
  TESSERA_ASSERT(!stats || stats.shape == (Shape{rows, 2}));
  with_float_type(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    team.for_ranges(rows, kGrainRows, [&](int64_t, int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        normalize_row(x.as<T>() + row * channels, weight.as<T>(), bias.as<T>(), channels, static_cast<T>(epsilon),
                      y.as<T>() + row * channels, stats ? stats.as<T>() + row * 2 : nullptr);
      }
    });
  });
}

// Sums d_weight and d_bias over blocks of rows, then adds the blocks' sums [blocks, 2C] in their order. The result does
// not depend on which thread took which block.
void layer_norm_backward(Team& team, View d_y, View x, View weight, View bias, View stats, View residual, View d_x,
                         View d_weight, View d_bias, View y) {
  const int64_t rows = x.shape[0], channels = x.shape[1];
  TESSERA_ASSERT(d_y.shape == x.shape && d_x.shape == x.shape && weight.num_elems() == channels);
  TESSERA_ASSERT(stats.shape == (Shape{rows, 2}) && (!residual || residual.shape == x.shape));
  TESSERA_ASSERT(d_weight.num_elems() == channels && d_bias.num_elems() == channels);
  TESSERA_ASSERT(!y || (y.shape == x.shape && bias.num_elems() == channels));
  with_float_type(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    TESSERA_ASSERT(channels > 0 && 2 * channels <= Team::scratch_elems<T>());
    T* const sums = team.scratch<T>(0);
    auto sum_block = [&](int64_t first_row, T* block_sums) {
      std::fill_n(block_sums, 2 * channels, T(0));
      for (int64_t row = first_row; row < std::min(rows, first_row + kSumRows); ++row) {
        const int64_t at = row * channels;
        const T* row_stats = stats.as<T>() + row * 2;
        backward_row(d_y.as<T>() + at, x.as<T>() + at, weight.as<T>(), y ? bias.as<T>() : nullptr, row_stats[0],
                     row_stats[1], residual ? residual.as<T>() + at : nullptr, channels, d_x.as<T>() + at, block_sums,
                     block_sums + channels, y ? y.as<T>() + at : nullptr);
      }
    };
    // Processes as many blocks at a time as fit into the scratch.
    const int64_t num_blocks = (rows + kSumRows - 1) / kSumRows, wave = Team::scratch_elems<T>() / (2 * channels);
    for (int64_t first = 0; first < num_blocks; first += wave) {
      const int64_t wave_blocks = std::min(wave, num_blocks - first);
      team.for_each(wave_blocks,
                    [&](int64_t, int64_t i) { sum_block((first + i) * kSumRows, sums + i * 2 * channels); });
      team.for_ranges(channels, kColumnMultiple, [&](int64_t, int64_t begin, int64_t end) {
        for (int64_t i = 0; i < wave_blocks; ++i) {
          const T* from = sums + i * 2 * channels;
          add_range(from, begin, end, d_weight.as<T>());
          add_range(from + channels, begin, end, d_bias.as<T>());
        }
      });
    }
  });
}

}  // namespace tessera::cpu
