// Code shared by attention's forward and backward kernels on tensor cores.
#pragma once

#include "tessera/ops/cuda/attention_shapes.cuh"
#include "tessera/ops/cuda/tiles.cuh"

namespace tessera::cuda {

// A thread block computes 64 rows: queries or keys. Each of its four warps computes 16 of these rows.
inline constexpr int kTileWarps = 4, kTileThreads = kTileWarps * kWarp, kTileRows = kTileWarps * 16;
inline constexpr float kLog2E = 1.4426950408889634f, kLn2 = 0.6931471805599453f;

// The factors of the scores. A score is q·k·scale + slope·key, where `key` is the key's position in its sequence. Both
// factors are stored multiplied by log₂e. The kernels can then compute powers of 2, which the hardware supports,
// instead of powers of e.
struct Scores {
  float scale, slope;
  __device__ Scores(float scale_of_products, float alibi_slope)
      : scale(scale_of_products * kLog2E), slope(alibi_slope * kLog2E) {}
  __device__ float bias(int key) const { return slope * static_cast<float>(key); }
};

// The state of the softmax in the two rows whose elements this thread holds. `maximum` is the row's maximum score so
// far, times log₂e. `sum` is the sum of 2^(score·log₂e − maximum) over this thread's columns only.
struct Softmax {
  float maximum[2], sum[2];
};

// 2ˣ in hardware, within 2 ulp. Results below 2^-126 become 0.
__device__ inline float fast_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Returns true if at least one of the warp's queries [first_row, first_row + 16) does not see one of the keys
// [k0, k0 + keys).
__device__ inline bool needs_mask(int first_row, int k0, int keys, int window) {
  return k0 + keys - 1 > first_row || k0 <= first_row + 15 - window;
}

// Sets scores to `value` where the query does not see the key. The warp's queries begin at `first_row`, the keys at k0.
template <int kKeys>
__device__ inline void mask_scores(Accumulator<kKeys>& s, int first_row, int k0, int window, float value) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
  for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int ahead = k0 + n * 8 + lane % 4 * 2 + e % 2 - (first_row + e / 2 * 8 + lane / 4);
      if (ahead > 0 || ahead <= -window) s.at[n][e] = value;
    }
  }
}

// Returns which keys dropout keeps, for one row of an Accumulator whose column 0 is key k0. The result has one bit for
// each of this thread's columns, and the bit is 1 if the key is kept. Bit 2n + e is for element e of the thread's two
// elements in columns [8n, 8n + 8). In a group of 64 keys, keys at a distance of 16, 32 or 48 use the four words of the
// same Philox counter (ops/dropout_mask.h). Therefore four counters suffice for this thread's columns of the row.
template <int kKeys>
__device__ inline uint32_t kept_keys(const Mask& mask, int64_t row, int head, int k0) {
  uint32_t kept = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int column = i / 2 * 8 + static_cast<int>(threadIdx.x) % 4 * 2 + i % 2;
    const Words words = mask.words(row, attention_dropout_column(head, k0 / 64 * 64 + column));
#pragma unroll
    for (int w = 0; w < kKeys / 16; ++w) {
      if (words[static_cast<uint32_t>(k0 % 64 / 16 + w)] >= mask.threshold) kept |= 1u << (4 * w + i);
    }
  }
  return kept;
}
__device__ inline bool keeps(uint32_t kept, int n, int e) {
  return kept >> (2 * n + e) & 1;
}

// Products::kWarpsTogether warps compute one product together (mma.cuh, wgmma.cuh). Returns the first row of this
// warp's product, counted from the first row of the thread block.
template <typename Products>
__device__ inline int first_row_together() {
  return static_cast<int>(threadIdx.x) / kWarp / Products::kWarpsTogether * Products::kWarpsTogether * 16;
}

}  // namespace tessera::cuda
