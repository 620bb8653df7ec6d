// Products of tiles on Hopper's tensor cores with wgmma (sm_90a). Four warps take part in one product. The right
// factor, and the left one if it is a tile, are read from shared memory once for all four.
#pragma once

#include "tessera/ops/cuda/tiles.cuh"

namespace tessera::cuda {

// The descriptor of a SwizzledRows tile for wgmma (PTX ISA, "Matrix descriptor"). Groups of eight rows are 1,024 bytes
// apart. The descriptor's second distance is unused if 64 elements are the full width. Descriptors count in units of 16
// bytes. If the inner elements are in a row, a step of 16 of them is 32 bytes, because the swizzle applies to
// addresses. If the inner elements are rows, the step is 16 rows.
__device__ inline uint64_t tile_descriptor(const void* tile) {
  constexpr uint64_t kRowGroup = 1024 / 16, kSwizzle128 = 1;
  return (shared_address(tile) & 0x3ffff) >> 4 | uint64_t{1} << 16 | kRowGroup << 32 | kSwizzle128 << 62;
}
inline constexpr uint32_t kStepInRow = 32 / 16, kStepOfRows = 16 * 128 / 16;

// wgmma with an accumulator's 32 registers, %0 to %31, followed by its operands.
#define TESSERA_WGMMA(C, BEFORE, TYPES, FACTORS, ...)                                                                \
  asm volatile(BEFORE "wgmma.mma_async.sync.aligned.m64n64k16.f32." TYPES                                            \
                      " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, " \
                      "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, " FACTORS                        \
               : "+f"(C.at[0][0]), "+f"(C.at[0][1]), "+f"(C.at[0][2]), "+f"(C.at[0][3]), "+f"(C.at[1][0]),           \
                 "+f"(C.at[1][1]), "+f"(C.at[1][2]), "+f"(C.at[1][3]), "+f"(C.at[2][0]), "+f"(C.at[2][1]),           \
                 "+f"(C.at[2][2]), "+f"(C.at[2][3]), "+f"(C.at[3][0]), "+f"(C.at[3][1]), "+f"(C.at[3][2]),           \
                 "+f"(C.at[3][3]), "+f"(C.at[4][0]), "+f"(C.at[4][1]), "+f"(C.at[4][2]), "+f"(C.at[4][3]),           \
                 "+f"(C.at[5][0]), "+f"(C.at[5][1]), "+f"(C.at[5][2]), "+f"(C.at[5][3]), "+f"(C.at[6][0]),           \
                 "+f"(C.at[6][1]), "+f"(C.at[6][2]), "+f"(C.at[6][3]), "+f"(C.at[7][0]), "+f"(C.at[7][1]),           \
                 "+f"(C.at[7][2]), "+f"(C.at[7][3])                                                                  \
               : __VA_ARGS__)

// Starts c = or += left·rightᵀ: [64, 16] by [64, 16], elements of a row contiguous.
template <typename T>
__device__ inline void start_product(Accumulator<64>& c, uint64_t left, uint64_t right, bool adds) {
#define TESSERA_OF_TILES(TYPES)                                                                                     \
  TESSERA_WGMMA(c, "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n", TYPES, "%32, %33, p, 1, 1, 0, 0;\n}\n", "l"(left), \
                "l"(right), "r"(adds ? 1 : 0))
  if constexpr (std::is_same_v<T, Bf16>) {
    TESSERA_OF_TILES("bf16.bf16");
  } else {
    TESSERA_OF_TILES("f16.f16");
  }
#undef TESSERA_OF_TILES
}

// Starts c += left·right: [64, 16] in registers by [16, 64].
template <typename T>
__device__ inline void start_product(Accumulator<64>& c, const FragmentA& left, uint64_t right) {
#define TESSERA_OF_REGISTERS(TYPES)                                                                         \
  TESSERA_WGMMA(c, "", TYPES, "{%32, %33, %34, %35}, %36, 1, 1, 1, 1;\n", "r"(left.at[0]), "r"(left.at[1]), \
                "r"(left.at[2]), "r"(left.at[3]), "l"(right))
  if constexpr (std::is_same_v<T, Bf16>) {
    TESSERA_OF_REGISTERS("bf16.bf16");
  } else {
    TESSERA_OF_REGISTERS("f16.f16");
  }
#undef TESSERA_OF_REGISTERS
}
#undef TESSERA_WGMMA

// The same interface as MmaProducts, for tiles [64, 64].
template <typename T>
struct WgmmaProducts {
  using Element = T;
  using Rows = SwizzledRows;
  static constexpr int kWarpsTogether = 4;

  // Starts c = left · rightᵀ. The caller must wait for c.
  __device__ static void multiply_transposed(Accumulator<64>& c, const T* left, const T* right) {
    const uint64_t left_tile = tile_descriptor(left), right_tile = tile_descriptor(right);
    keep(c);
    begin();
#pragma unroll
    for (uint32_t d = 0; d < 4; ++d) {
      start_product<T>(c, left_tile + d * kStepInRow, right_tile + d * kStepInRow, d > 0);
    }
    commit();
  }

  // Starts c += of(left) · right. The caller must wait for c.
  template <typename Of = Same>
  __device__ static void multiply_registers(Accumulator<64>& c, const Accumulator<64>& left, const T* right,
                                            const Of& of = {}) {
    FragmentA a[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) a[k] = as_left<T>(left, k, of);
    const uint64_t right_tile = tile_descriptor(right);
    keep(c);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
#pragma unroll
      for (int i = 0; i < 4; ++i) asm volatile("" : "+r"(a[k].at[i])::"memory");
    }
    begin();
#pragma unroll
    for (uint32_t k = 0; k < 4; ++k) start_product<T>(c, a[k], right_tile + k * kStepOfRows);
    commit();
  }

  // Waits until at most `kPending` products are outstanding. None of them writes `c`.
  template <int kPending, typename... Accumulators>
  __device__ static void wait(Accumulators&... c) {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
    (keep(c), ...);
  }
  // Call it before the barrier that precedes reading the tiles. It makes this thread's writes visible to wgmma.
  __device__ static void publish_tiles() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }

 private:
  __device__ static void begin() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  }
  __device__ static void commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  }
  // The compiler does not know that a running product changes registers. This keeps uses of c after the wait.
  __device__ static void keep(Accumulator<64>& c) {
#pragma unroll
    for (int n = 0; n < 8; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) asm volatile("" : "+f"(c.at[n][e])::"memory");
    }
  }
};

}  // namespace tessera::cuda
