// How a norm distributes its rows over threads. A row is in the registers of one warp, or of several warps of one
// thread block. A pack (types.cuh) is a few neighbouring elements that a thread loads together.
#pragma once

#include <algorithm>

#include "tessera/ops/cuda/context.h"
#include "tessera/ops/cuda/reduce.cuh"
#include "tessera/ops/cuda/types.cuh"

namespace tessera::cuda {

inline constexpr int kForwardPacks = 4;        // forward pass: packs of a row per thread, at most
inline constexpr int kMaxWarps = 32;           // warps of a block, at most
inline constexpr int kSmallBlock = 4 * kWarp;  // threads of a small block, at most (norm_forward_kernel)
inline constexpr int kBackwardThreads = 768;   // backward pass: threads of a block with one pack per thread, at most

// A block computes `rows` rows at a time, with `warps` warps for each row. Neighbouring packs of a row belong to
// neighbouring threads.
struct NormRows {
  int warps, rows;
  dim3 block() const { return dim3(static_cast<unsigned>(warps * kWarp), static_cast<unsigned>(rows)); }
};

inline int64_t warps_for(int64_t channels, int elems_per_thread) {
  return (channels + elems_per_thread * kWarp - 1) / (elems_per_thread * kWarp);
}

// Forward pass: a block has several rows of one warp each, or one row of several warps. `pack`: elements per pack.
inline NormRows forward_rows(int64_t channels, int pack) {
  const int64_t warps = warps_for(channels, pack * kForwardPacks);
  TESSERA_ASSERT(warps <= kMaxWarps);
  return {static_cast<int>(warps), warps == 1 ? kSmallBlock / kWarp : 1};
}

// Backward pass: as many rows per block as `max_warps` warps can hold, but at least one.
inline NormRows backward_rows(int64_t channels, int elems_per_thread, int max_warps) {
  const int64_t warps = warps_for(channels, elems_per_thread);
  TESSERA_ASSERT(warps <= kMaxWarps);
  return {static_cast<int>(warps), static_cast<int>(std::max<int64_t>(1, max_warps / warps))};
}

// Calls body(v, c) for each pack of this thread. v is the number of the pack, from 0, and c is its first channel.
template <int N, int kPacks, typename Body>
__device__ inline void for_packs(int channels, const Body& body) {
#pragma unroll
  for (int v = 0; v < kPacks; ++v) {
    const int c = (v * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x)) * N;
    if (c < channels) body(v, c);
  }
}

// LayerRow and RmsRow contain the statistics of a row and the formulas of their norm. In these formulas, C is the
// number of channels, x̂ is the normalized row, and g = d_y∘weight. The forward pass stores `kStats` statistics for each
// row, and the backward pass reads them. d_x needs `kSums` sums over the row. add() adds the terms of one channel to
// these sums and to d_weight. d_x() takes the sums divided by C (`means`). A norm has `kParameters` parameters per
// channel.

// x̂ = (x − mean)·rstd;   y = x̂∘weight + bias;   d_x = rstd·(g − Σg/C − x̂·Σ(g∘x̂)/C)
template <typename A>
struct LayerRow {
  static constexpr bool kIsCentred = true;
  static constexpr int kStats = 2, kSums = 2, kParameters = 2;
  A mean = 0, rstd = 0;

  __device__ static LayerRow load(const A* stats, int64_t row) {
    return {stats[row * kStats], stats[row * kStats + 1]};
  }
  __device__ void store(A* stats, int64_t row) const {
    stats[row * kStats] = mean;
    stats[row * kStats + 1] = rstd;
  }
  __device__ A y(A x, A weight, A bias) const { return (x - mean) * rstd * weight + bias; }
  __device__ void add(A d_y, A x, A weight, A (&sums)[2], A& d_weight) const {
    const A normal = (x - mean) * rstd, g = d_y * weight;
    sums[0] += g;
    sums[1] += g * normal;
    d_weight += d_y * normal;
  }
  __device__ A d_x(A d_y, A x, A weight, const A (&means)[2]) const {
    const A normal = (x - mean) * rstd;
    return rstd * (d_y * weight - means[0] - normal * means[1]);
  }
};

// x̂ = x·rstd;   y = x̂∘weight;   d_x = rstd·(g − x̂·Σ(g∘x̂)/C)
template <typename A>
struct RmsRow {
  static constexpr bool kIsCentred = false;
  static constexpr int kStats = 1, kSums = 1, kParameters = 1;
  A rstd = 0;

  __device__ static RmsRow load(const A* stats, int64_t row) { return {stats[row * kStats]}; }
  __device__ void store(A* stats, int64_t row) const { stats[row * kStats] = rstd; }
  __device__ A y(A x, A weight, A) const { return x * rstd * weight; }
  __device__ void add(A d_y, A x, A weight, A (&sums)[1], A& d_weight) const {
    const A product = d_y * (x * rstd);
    sums[0] += product * weight;
    d_weight += product;
  }
  __device__ A d_x(A d_y, A x, A weight, const A (&means)[1]) const {
    const A normal = x * rstd;
    return rstd * (d_y * weight - normal * means[0]);
  }
};

}  // namespace tessera::cuda
