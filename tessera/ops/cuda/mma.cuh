// Products of tiles on tensor cores with mma.sync (sm_80 and later). Each warp computes its own rows of the product,
// and reads the factors from shared memory with ldmatrix.
#pragma once

#include "tessera/ops/cuda/tiles.cuh"

namespace tessera::cuda {

// A warp's right factor [16, 8] of one mma.sync, in registers. FragmentA (tiles.cuh) is the left factor [16, 16].
struct FragmentB {
  uint32_t at[2];
};

// c [16, 8] += a·b
template <typename T>
__device__ inline void multiply_add(float (&c)[4], const FragmentA& a, const FragmentB& b) {
  if constexpr (!kHasMma) {
    __trap();
  } else if constexpr (std::is_same_v<T, Bf16>) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a.at[0]), "r"(a.at[1]), "r"(a.at[2]), "r"(a.at[3]), "r"(b.at[0]), "r"(b.at[1]));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a.at[0]), "r"(a.at[1]), "r"(a.at[2]), "r"(a.at[3]), "r"(b.at[0]), "r"(b.at[1]));
  }
}

// The products that attention's kernels need, on tiles [64, kWidth]. Four warps compute 16 rows each. If a warp
// computed 32 rows, the right factor would be read half as often, but measurements showed no gain.
template <typename T, int kWidth>
struct MmaProducts {
  using Element = T;
  using Rows = PaddedRows<kWidth>;
  static constexpr int kWarpsTogether = 1;  // the number of warps that compute one product together

  // c = left · rightᵀ, for this warp's 16 rows of `left`. `right` has kN rows.
  template <int kN>
  __device__ static void multiply_transposed(Accumulator<kN>& c, const T* left, const T* right) {
    left += static_cast<int>(threadIdx.x) / kWarp * 16 * Rows::kStride;
    c.clear();
#pragma unroll
    for (int d = 0; d < kWidth; d += 16) {
      const FragmentA a = load_left(left + d);
#pragma unroll
      for (int n = 0; n < kN; n += 16) {
        FragmentB b[2];
        load_right_transposed(right + n * Rows::kStride + d, b);
        multiply_add<T>(c.at[n / 8], a, b[0]);
        multiply_add<T>(c.at[n / 8 + 1], a, b[1]);
      }
    }
  }

  // c += of(left) · right. of(x) is computed for each element x of `left` and rounded to T. `right` has kK rows.
  template <int kK, typename Of = Same>
  __device__ static void multiply_registers(Accumulator<kWidth>& c, const Accumulator<kK>& left, const T* right,
                                            const Of& of = {}) {
#pragma unroll
    for (int k = 0; k < kK; k += 16) {
      const FragmentA a = as_left<T>(left, k / 16, of);
#pragma unroll
      for (int n = 0; n < kWidth; n += 16) {
        FragmentB b[2];
        load_right(right + k * Rows::kStride + n, b);
        multiply_add<T>(c.at[n / 8], a, b[0]);
        multiply_add<T>(c.at[n / 8 + 1], a, b[1]);
      }
    }
  }

  // WgmmaProducts (wgmma.cuh) has the same functions. Its products are asynchronous, so it needs wait() and
  // publish_tiles(). The products here are synchronous, so wait() and publish_tiles() do nothing.
  template <int kPending, typename... Accumulators>
  __device__ static void wait(Accumulators&...) {}
  __device__ static void publish_tiles() {}

 private:
  // Returns a left factor: 16 rows and 16 columns of a tile. `tile` points to the first of these elements.
  __device__ static FragmentA load_left(const T* tile) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const uint32_t address = shared_address(tile + lane % 16 * Rows::kStride + lane / 16 * 8);
    FragmentA a{};
    if constexpr (kHasMma)
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                   : "=r"(a.at[0]), "=r"(a.at[1]), "=r"(a.at[2]), "=r"(a.at[3])
                   : "r"(address));
    return a;
  }

  // Loads two right factors, which together are b [16, 16], from 16 rows and 16 columns of a tile: b is the transpose
  // of this part of the tile. `tile` points to the first of these elements.
  __device__ static void load_right_transposed(const T* tile, FragmentB (&b)[2]) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const uint32_t address = shared_address(tile + (lane / 16 * 8 + lane % 8) * Rows::kStride + lane / 8 % 2 * 8);
    if constexpr (kHasMma)
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                   : "=r"(b[0].at[0]), "=r"(b[0].at[1]), "=r"(b[1].at[0]), "=r"(b[1].at[1])
                   : "r"(address));
  }

  // Like load_right_transposed(), but b is this part of the tile without a transpose.
  __device__ static void load_right(const T* tile, FragmentB (&b)[2]) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const uint32_t address = shared_address(tile + lane % 16 * Rows::kStride + lane / 16 * 8);
    if constexpr (kHasMma)
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                   : "=r"(b[0].at[0]), "=r"(b[0].at[1]), "=r"(b[1].at[0]), "=r"(b[1].at[1])
                   : "r"(address));
  }
};

}  // namespace tessera::cuda
