// Weights in NF4 (Kernels::dequantize), and matrices in 8 bits (Kernels::quantize).
#include <algorithm>
#include <array>
#include <vector>

#include "tessera/base/float8.h"
#include "tessera/base/nf4.h"
#include "tessera/ops/cpu/cpu_kernels.h"

namespace tessera::cpu {

namespace {

uint8_t* codes(View values) {
  TESSERA_ASSERT(values.dtype == DType::e4m3);
  return reinterpret_cast<uint8_t*>(values.data);
}

// The bits of the largest magnitude of from[i · stride], i < count.
uint32_t largest_bits(const float* from, int64_t stride, int64_t count) {
  uint32_t largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    largest = std::max(largest, std::bit_cast<uint32_t>(from[i * stride]) & 0x7fffffffu);
  }
  return largest;
}

// Rounds a square of the matrix `to`, the one at (row_block, column_block): R rows of K values. Value (r, k) is
// from[r · row_stride + k · stride].
void quantize_tile(const float* from, int64_t R, int64_t row_stride, int64_t K, int64_t stride, Float8ScaleKind kind,
                   const Float8Matrix& to, int64_t row_block, int64_t column_block) {
  const int64_t pitch = to.values.shape[1], scale_pitch = to.scales.shape[1];
  uint8_t* const first = reinterpret_cast<uint8_t*>(to.values.data) + (row_block * pitch + column_block) * kFloat8Block;
  float* const scales = to.scales.as<float>();
  Float8Scale scale;
  if (to.squares) {
    uint32_t largest = 0;
    for (int64_t r = 0; r < R; ++r) largest = std::max(largest, largest_bits(from + r * row_stride, stride, K));
    scale = float8_scale(largest, kind);
    scales[row_block * scale_pitch + column_block] = scale.scale;
  }
  for (int64_t r = 0; r < R; ++r) {
    const float* const row = from + r * row_stride;
    if (!to.squares) {
      scale = float8_scale(largest_bits(row, stride, K), kind);
      scales[column_block * scale_pitch + row_block * kFloat8Block + r] = scale.scale;
    }
    for (int64_t k = 0; k < K; ++k) first[r * pitch + k] = f32_to_e4m3(row[k * stride] * scale.inverse);
  }
}

// Calls visit(values, i, n, square) for the runs of neighbouring elements of a part that are in one row of a square:
// elements [i, i + n) of shard.values as f32. n is at most kFloat8Block.
template <typename Visit>
void for_each_run(const Kernels::Float8Shard& shard, Visit&& visit) {
  float values[kFloat8Block];
  const auto elem_bytes = static_cast<int64_t>(size_of(shard.values.dtype));
  const int64_t end = shard.first + shard.values.num_elems();
  for (const Float8Place& place : shard.places) {
    const int64_t across = float8_scales(place.rows, place.columns, true)[1];
    const int64_t last = std::min(end, place.offset + place.rows * place.columns);
    for (int64_t at = std::max(shard.first, place.offset), n = 0; at < last; at += n) {
      const int64_t row = (at - place.offset) / place.columns, column = (at - place.offset) % place.columns;
      n = std::min({last - at, place.columns - column, kFloat8Block - column % kFloat8Block});
      convert(shard.values.data + (at - shard.first) * elem_bytes, shard.values.dtype, values, DType::f32,
              static_cast<size_t>(n));
      visit(values, at - shard.first, n, place.first_scale + row / kFloat8Block * across + column / kFloat8Block);
    }
  }
}

}  // namespace

void CpuKernels::dequantize(View groups, View values) {
  const int64_t n = values.num_elems();
  TESSERA_ASSERT(groups.dtype == DType::nf4 && groups.num_elems() == nf4_groups(n));
  const auto* const first = reinterpret_cast<const Nf4Group*>(groups.data);
  const View flat{values.data, values.dtype, {n}};
  team_.for_ranges(groups.num_elems(), 1, [&](int64_t, int64_t begin, int64_t end) {
    std::vector<float> weights(kNf4GroupWeights);
    for (int64_t group = begin; group < end; ++group) {
      const int64_t from = group * kNf4GroupWeights, to = std::min(n, from + kNf4GroupWeights);
      const View part = flat.rows(from, to);
      if (part.dtype == DType::f32) {
        dequantize_nf4(first, from, to, part.as<float>());
      } else {
        dequantize_nf4(first, from, to, weights.data());
        tessera::convert(weights.data(), DType::f32, part.data, part.dtype, static_cast<size_t>(to - from));
      }
    }
  });
}

void CpuKernels::quantize(const Quantize& call) {
  TESSERA_ASSERT(!call.norm.weight);  // EmulatedKernels computes it
  const View x = call.x;
  const int64_t R = x.shape[0], K = x.shape[1], padded = float8_terms(R);
  const auto check = [](const Float8Matrix& to, int64_t rows, int64_t columns) {
    TESSERA_ASSERT(!to || (to.values.dtype == DType::e4m3 && to.values.shape == (Shape{rows, columns}) &&
                           to.scales.shape == float8_scales(rows, columns, to.squares)));
  };
  check(call.rows, R, K);
  check(call.columns, K, padded);
  // A tile has whole blocks of both kinds: 128 rows and 128 columns of x.
  static_assert(kFloat8Block * kFloat8Block <= Team::scratch_elems<float>());
  const auto elem_bytes = static_cast<int64_t>(size_of(x.dtype));
  const int64_t across = ceil_divide(K, kFloat8Block);
  team_.for_each(ceil_divide(R, kFloat8Block) * across, [&](int64_t thread, int64_t tile) {
    const int64_t first = tile / across * kFloat8Block, k = tile % across * kFloat8Block;
    const int64_t num_rows = std::min(kFloat8Block, R - first), num_columns = std::min(kFloat8Block, K - k);
    float* const values = team_.scratch<float>(thread);
    for (int64_t row = 0; row < num_rows; ++row) {
      tessera::convert(x.data + ((first + row) * K + k) * elem_bytes, x.dtype, values + row * kFloat8Block, DType::f32,
                       static_cast<size_t>(num_columns));
    }
    const int64_t row_block = first / kFloat8Block, column_block = k / kFloat8Block;
    if (call.rows) {
      quantize_tile(values, num_rows, kFloat8Block, num_columns, 1, Float8ScaleKind::quotient, call.rows, row_block,
                    column_block);
    }
    if (!call.columns) return;
    const auto kind = call.columns.squares ? call.kind_of_columns : Float8ScaleKind::power_of_two;
    quantize_tile(values, num_columns, 1, num_rows, kFloat8Block, kind, call.columns, column_block, row_block);
    if (first + num_rows < R) return;
    for (int64_t column = k; column < k + num_columns; ++column) {
      std::fill(codes(call.columns.values) + column * padded + R, codes(call.columns.values) + (column + 1) * padded,
                uint8_t{0});
    }
  });
}

void CpuKernels::largest_of_squares(Stream& stream, const Float8Shard& shard, View largest) {
  stream.run([shard, largest] {
    auto* const all = reinterpret_cast<uint32_t*>(largest.data);
    std::fill_n(all, largest.num_elems(), 0u);
    for_each_run(shard, [&](const float* values, int64_t, int64_t n, int64_t square) {
      all[square] = std::max(all[square], largest_bits(values, 1, n));
    });
  });
}

void CpuKernels::quantize_shard(Stream& stream, const Float8Shard& shard, View largest, View scales, View to) {
  TESSERA_ASSERT(to.dtype == DType::e4m3 && to.num_elems() == shard.values.num_elems());
  stream.run([shard, largest, scales, to] {
    const auto scale_of = [&](int64_t square) {
      const auto* of_part = reinterpret_cast<const uint32_t*>(largest.data) + square;
      uint32_t most = 0;
      for (int64_t r = 0; r < largest.shape[0]; ++r, of_part += largest.shape[1]) most = std::max(most, *of_part);
      return float8_scale(most, Float8ScaleKind::quotient);
    };
    for (int64_t i = 0; i < scales.num_elems(); ++i) scales.as<float>()[i] = scale_of(i).scale;
    std::fill_n(codes(to), to.num_elems(), uint8_t{0});
    for_each_run(shard, [&](const float* values, int64_t first, int64_t n, int64_t square) {
      const float inverse = scale_of(square).inverse;
      for (int64_t i = 0; i < n; ++i) codes(to)[first + i] = f32_to_e4m3(values[i] * inverse);
    });
  });
}

void CpuKernels::transpose8(const Float8Matrix& from, const Float8Matrix& to) {
  const int64_t R = from.values.shape[0], K = from.values.shape[1];
  TESSERA_ASSERT(from.squares && to.squares && to.values.shape == (Shape{K, R}));
  const float* const scales = from.scales.as<float>();
  const int64_t pitch = from.scales.shape[1], to_pitch = to.scales.shape[1];
  team_.for_ranges(K, kFloat8Block, [&](int64_t, int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      for (int64_t r = 0; r < R; ++r) codes(to.values)[k * R + r] = codes(from.values)[r * K + k];
      if (k % kFloat8Block > 0) continue;
      const int64_t row = k / kFloat8Block;
      for (int64_t i = 0; i < ceil_divide(R, kFloat8Block); ++i) {
        to.scales.as<float>()[row * to_pitch + i] = scales[i * pitch + row];
      }
    }
  });
}

void CpuKernels::dequantize8(const Float8Matrix& from, bool transposed, View x) {
  const int64_t R = from.values.shape[0], K = from.values.shape[1];
  TESSERA_ASSERT(x.dtype == DType::f32 && x.shape[transposed ? 1 : 0] == R && x.shape[transposed ? 0 : 1] <= K);
  const uint8_t* const values = codes(from.values);
  const float* const scales = from.scales.as<float>();
  static const auto numbers = [] {
    std::array<float, 256> all{};
    for (size_t i = 0; i < all.size(); ++i) all[i] = e4m3_to_f32(static_cast<uint8_t>(i));
    return all;
  }();
  const int64_t scale_pitch = from.scales.shape[1];
  const auto at = [&](int64_t r, int64_t k) {
    const float scale = from.squares ? scales[r / kFloat8Block * scale_pitch + k / kFloat8Block]
                                     : scales[k / kFloat8Block * scale_pitch + r];
    return numbers[values[r * K + k]] * scale;
  };
  team_.for_ranges(x.shape[0], 16, [&](int64_t, int64_t begin, int64_t end) {
    const int64_t columns = x.shape[1];
    for (int64_t row = begin; row < end; ++row) {
      float* const to = x.as<float>() + row * columns;
      for (int64_t i = 0; i < columns; ++i) to[i] = transposed ? at(i, row) : at(row, i);
    }
  });
}

}  // namespace tessera::cpu
