// Rotary positions, and the norms that Qwen3 applies to the heads before the rotation.
#include <cmath>

#include "tessera/ops/cpu/cpu_kernels.h"
#include "tessera/ops/cpu/dispatch.h"
#include "tessera/ops/cpu/rms_norm.h"
#include "tessera/ops/cpu/row_sums.h"

namespace tessera::cpu {

namespace {

// y = one head x [D], rotated by the angles (direction 1) or rotated back (direction −1). `rotation` [D] is a row of
// rotary_angles(): the cosines, then the sines. half = D/2. y may be x.
template <typename T>
void rotate(const T* x, const T* rotation, int64_t half, T direction, T* y) {
  const T *cosines = rotation, *sines = rotation + half;
#pragma omp simd
  for (int64_t j = 0; j < half; ++j) {
    const T first = x[j], second = x[half + j], sine = direction * sines[j];
    y[j] = first * cosines[j] - second * sine;
    y[half + j] = second * cosines[j] + first * sine;
  }
}

void check(View qkv_like, View rotations, const AttentionShape& shape, const HeadNorms& norms) {
  TESSERA_ASSERT(shape.layout == QkvLayout::blocked && shape.head_dim % 2 == 0);
  TESSERA_ASSERT(qkv_like.shape[1] == shape.row_channels());
  TESSERA_ASSERT(rotations.shape == (Shape{qkv_like.shape[0], shape.head_dim}));
  TESSERA_ASSERT(static_cast<bool>(norms.query_weight) == static_cast<bool>(norms.key_weight));
  TESSERA_ASSERT(!norms.query_weight ||
                 (norms.query_weight.num_elems() == shape.head_dim && norms.key_weight.num_elems() == shape.head_dim));
}

constexpr int64_t kGrainRows = 4;

}  // namespace

// The product of position and frequency is rounded to f32, as in transformers. The sine and the cosine of this product
// are computed in f64.
void CpuKernels::rotary_angles(View positions, View frequencies, double scale, View rotations) {
  const int64_t rows = positions.num_elems(), half = frequencies.num_elems();
  TESSERA_ASSERT(rotations.shape == (Shape{rows, 2 * half}));
  with_float_type(rotations.dtype, [&](auto zero) {
    using T = decltype(zero);
    team_.for_ranges(rows, kGrainRows, [&](int64_t, int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        T* const to = rotations.as<T>() + row * 2 * half;
        for (int64_t j = 0; j < half; ++j) {
          const float angle = static_cast<float>(positions.as<int32_t>()[row]) * frequencies.as<float>()[j];
          to[j] = static_cast<T>(scale * std::cos(double{angle}));
          to[half + j] = static_cast<T>(scale * std::sin(double{angle}));
        }
      }
    });
  });
}

void CpuKernels::rotate_heads(const RotateHeads& call) {
  const AttentionShape& shape = call.shape;
  const HeadNorms& norms = call.norms;
  check(call.qkv, call.rotations, shape, norms);
  TESSERA_ASSERT(call.y.shape == call.qkv.shape && (!norms.query_weight || call.y.data != call.qkv.data));
  const int64_t d = shape.head_dim, width = shape.row_channels(), rotated = shape.channels() + shape.kv_channels();
  with_float_type(call.qkv.dtype, [&](auto zero) {
    using T = decltype(zero);
    team_.for_ranges(call.qkv.shape[0], kGrainRows, [&](int64_t, int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const T *from = call.qkv.as<T>() + row * width, *rotation = call.rotations.as<T>() + row * d;
        T* const to = call.y.as<T>() + row * width;
        for (int64_t c = 0; c < rotated; c += d) {
          const T* x = from + c;
          if (norms.query_weight) {
            const View weight = c < shape.channels() ? norms.query_weight : norms.key_weight;
            rms_scale(x, weight.as<T>(), d, rms_rstd(x, d, static_cast<T>(norms.epsilon)), to + c);
            x = to + c;
          }
          rotate(x, rotation, d / 2, T(1), to + c);
        }
        if (to != from) std::copy(from + rotated, from + width, to + rotated);
      }
    });
  });
}

void CpuKernels::rotate_heads_backward(const RotateHeadsBackward& call) {
  const AttentionShape& shape = call.shape;
  const HeadNorms& norms = call.norms;
  check(call.d_y, call.rotations, shape, norms);
  TESSERA_ASSERT(call.d_qkv.shape == call.d_y.shape);
  const bool has_norms = static_cast<bool>(norms.query_weight);
  TESSERA_ASSERT(!has_norms || (call.qkv.shape == call.d_y.shape && call.d_query_weight.num_elems() == shape.head_dim &&
                                call.d_key_weight.num_elems() == shape.head_dim));
  const int64_t d = shape.head_dim, width = shape.row_channels(), rotated = shape.channels() + shape.kv_channels();
  with_float_type(call.d_y.dtype, [&](auto zero) {
    using T = decltype(zero);
    // Computes rows [begin, end) of d_qkv. Adds the gradient of the queries' norm weight to the first D elements
    // of `sums` [2D], and the gradient of the keys' norm weight to the last D elements. Without norms, does not use
    // `sums`.
    const auto rows_backward = [&](int64_t begin, int64_t end, T* sums) {
      for (int64_t row = begin; row < end; ++row) {
        const T *from = call.d_y.as<T>() + row * width, *rotation = call.rotations.as<T>() + row * d;
        T* const to = call.d_qkv.as<T>() + row * width;
        for (int64_t c = 0; c < rotated; c += d) {
          rotate(from + c, rotation, d / 2, T(-1), to + c);
          if (!has_norms) continue;
          const bool query = c < shape.channels();
          const T* x = call.qkv.as<T>() + row * width + c;
          rms_backward<T>(to + c, x, (query ? norms.query_weight : norms.key_weight).as<T>(),
                          rms_rstd(x, d, static_cast<T>(norms.epsilon)), nullptr, d, to + c, sums + (query ? 0 : d));
        }
        if (to != from) std::copy(from + rotated, from + width, to + rotated);
      }
    };
    if (!has_norms) {
      team_.for_ranges(call.d_y.shape[0], kGrainRows,
                       [&](int64_t, int64_t begin, int64_t end) { rows_backward(begin, end, nullptr); });
      return;
    }
    sum_in_blocks<T>(team_, call.d_y.shape[0], 2 * d, rows_backward, [&](int64_t begin, int64_t end, const T* sums) {
      add_elements(sums, begin, std::min(end, d), call.d_query_weight.as<T>());
      add_elements(sums + d, std::max(begin, d) - d, std::max(end, d) - d, call.d_key_weight.as<T>());
    });
  });
}

}  // namespace tessera::cpu
