// Products of tiles on Hopper's tensor cores with wgmma (sm_90a). Four warps compute one product together. The hardware
// reads a factor in shared memory once for all four warps. The right factor is always in shared memory. The left factor
// is in shared memory or in registers.
#pragma once

#include "tessera/ops/cuda/tiles.cuh"

namespace tessera::cuda {

// Returns the descriptor of a SwizzledRows tile for wgmma (PTX ISA, "Matrix descriptor"). All distances in a descriptor
// are in units of 16 bytes. Groups of eight rows are 1,024 bytes apart. A product sums over its inner dimension. One
// wgmma covers 16 elements of this dimension, so the descriptor must advance from one wgmma to the next:
// - If the inner dimension runs along the rows of the tile, the next 16 elements are 32 bytes further in each row
//   (kStepInRow). The hardware swizzles the resulting address.
// - If the inner dimension runs across the rows, the next 16 elements are the next 16 rows (kStepOfRows). If the
//   product also has more than 64 columns, `next_columns` is the distance from 64 columns of the tile to the next 64,
//   in units of 16 bytes. In all other cases, `next_columns` is not used.
__device__ inline uint64_t tile_descriptor(const void* tile, uint64_t next_columns = 1) {
  constexpr uint64_t kRowGroup = 1024 / 16, kSwizzle128 = 1;
  return (shared_address(tile) & 0x3ffff) >> 4 | next_columns << 16 | kRowGroup << 32 | kSwizzle128 << 62;
}
inline constexpr uint32_t kStepInRow = 32 / 16, kStepOfRows = 16 * 128 / 16;

// One wgmma instruction. BEFORE is assembly code that runs before it. The operands %0, %1, ... are the registers of the
// accumulator C. FACTORS is the rest of the instruction. If BEFORE opens a brace, FACTORS closes it. The operands of
// FACTORS are the macro's last arguments.
#define TESSERA_FOUR(C, n) "+f"(C.at[n][0]), "+f"(C.at[n][1]), "+f"(C.at[n][2]), "+f"(C.at[n][3])
#define TESSERA_WGMMA_32(C, BEFORE, TYPES, FACTORS, ...)                                                  \
  asm volatile(BEFORE "wgmma.mma_async.sync.aligned.m64n32k16.f32." TYPES                                 \
                      " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, " FACTORS \
               : TESSERA_FOUR(C, 0), TESSERA_FOUR(C, 1), TESSERA_FOUR(C, 2), TESSERA_FOUR(C, 3)           \
               : __VA_ARGS__)
#define TESSERA_WGMMA_64(C, BEFORE, TYPES, FACTORS, ...)                                                             \
  asm volatile(BEFORE "wgmma.mma_async.sync.aligned.m64n64k16.f32." TYPES                                            \
                      " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, "                \
                      "%17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, " FACTORS         \
               : TESSERA_FOUR(C, 0), TESSERA_FOUR(C, 1), TESSERA_FOUR(C, 2), TESSERA_FOUR(C, 3), TESSERA_FOUR(C, 4), \
                 TESSERA_FOUR(C, 5), TESSERA_FOUR(C, 6), TESSERA_FOUR(C, 7)                                          \
               : __VA_ARGS__)
#define TESSERA_WGMMA_128(C, BEFORE, TYPES, FACTORS, ...)                                                            \
  asm volatile(BEFORE "wgmma.mma_async.sync.aligned.m64n128k16.f32." TYPES                                           \
                      " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, "                \
                      "%17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "                  \
                      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, "                  \
                      "%47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, "                  \
                      "%62, %63}, " FACTORS                                                                          \
               : TESSERA_FOUR(C, 0), TESSERA_FOUR(C, 1), TESSERA_FOUR(C, 2), TESSERA_FOUR(C, 3), TESSERA_FOUR(C, 4), \
                 TESSERA_FOUR(C, 5), TESSERA_FOUR(C, 6), TESSERA_FOUR(C, 7), TESSERA_FOUR(C, 8), TESSERA_FOUR(C, 9), \
                 TESSERA_FOUR(C, 10), TESSERA_FOUR(C, 11), TESSERA_FOUR(C, 12), TESSERA_FOUR(C, 13),                 \
                 TESSERA_FOUR(C, 14), TESSERA_FOUR(C, 15)                                                            \
               : __VA_ARGS__)

// How the inner dimension runs in the tiles of the two factors:
// - along_rows: along the rows of both tiles.
// - across_rows_of_right: along the rows of the left tile, and across the rows of the right tile.
// - across_rows: across the rows of both tiles.
enum class Inner { along_rows, across_rows_of_right, across_rows };

// Starts one wgmma: c = left·right, or with `adds` c += left·right. `left` [64, 16] and `right` [16, kN] are
// descriptors of tiles.
template <typename T, Inner kInner, int kN>
__device__ inline void start_product(Accumulator<kN>& c, uint64_t left, uint64_t right, bool adds) {
  static_assert(kN == 32 || kN == 64 || kN == 128);
#define TESSERA_WITH_INNER(WGMMA, TYPES, A, B, ADDS, IS_IN_ROWS)                                                 \
  WGMMA(c, "{\n.reg .pred p;\nsetp.ne.b32 p, " ADDS ", 0;\n", TYPES, A ", " B ", p, 1, 1, " IS_IN_ROWS ";\n}\n", \
        "l"(left), "l"(right), "r"(adds ? 1 : 0))
#define TESSERA_OF_TILES(WGMMA, TYPES, A, B, ADDS)              \
  if constexpr (kInner == Inner::along_rows) {                  \
    TESSERA_WITH_INNER(WGMMA, TYPES, A, B, ADDS, "0, 0");       \
  } else if constexpr (kInner == Inner::across_rows_of_right) { \
    TESSERA_WITH_INNER(WGMMA, TYPES, A, B, ADDS, "0, 1");       \
  } else {                                                      \
    TESSERA_WITH_INNER(WGMMA, TYPES, A, B, ADDS, "1, 1");       \
  }
  if constexpr (kN == 32 && std::is_same_v<T, Bf16>) {
    TESSERA_OF_TILES(TESSERA_WGMMA_32, "bf16.bf16", "%16", "%17", "%18")
  } else if constexpr (kN == 32) {
    TESSERA_OF_TILES(TESSERA_WGMMA_32, "f16.f16", "%16", "%17", "%18")
  } else if constexpr (kN == 64 && std::is_same_v<T, Bf16>) {
    TESSERA_OF_TILES(TESSERA_WGMMA_64, "bf16.bf16", "%32", "%33", "%34")
  } else if constexpr (kN == 64) {
    TESSERA_OF_TILES(TESSERA_WGMMA_64, "f16.f16", "%32", "%33", "%34")
  } else if constexpr (std::is_same_v<T, Bf16>) {
    TESSERA_OF_TILES(TESSERA_WGMMA_128, "bf16.bf16", "%64", "%65", "%66")
  } else {
    TESSERA_OF_TILES(TESSERA_WGMMA_128, "f16.f16", "%64", "%65", "%66")
  }
#undef TESSERA_OF_TILES
#undef TESSERA_WITH_INNER
}

// Starts one wgmma: c += left·right. `left` [64, 16] is in the registers of the four warps. `right` [16, kN] is the
// descriptor of a tile, and the inner dimension runs across its rows.
template <typename T, int kN>
__device__ inline void start_product(Accumulator<kN>& c, const FragmentA& left, uint64_t right) {
  static_assert(kN == 64 || kN == 128);
#define TESSERA_OF_REGISTERS(WGMMA, TYPES, FACTORS)                                                                  \
  WGMMA(c, "", TYPES, FACTORS ", 1, 1, 1, 1;\n", "r"(left.at[0]), "r"(left.at[1]), "r"(left.at[2]), "r"(left.at[3]), \
        "l"(right))
  if constexpr (kN == 64 && std::is_same_v<T, Bf16>) {
    TESSERA_OF_REGISTERS(TESSERA_WGMMA_64, "bf16.bf16", "{%32, %33, %34, %35}, %36");
  } else if constexpr (kN == 64) {
    TESSERA_OF_REGISTERS(TESSERA_WGMMA_64, "f16.f16", "{%32, %33, %34, %35}, %36");
  } else if constexpr (std::is_same_v<T, Bf16>) {
    TESSERA_OF_REGISTERS(TESSERA_WGMMA_128, "bf16.bf16", "{%64, %65, %66, %67}, %68");
  } else {
    TESSERA_OF_REGISTERS(TESSERA_WGMMA_128, "f16.f16", "{%64, %65, %66, %67}, %68");
  }
#undef TESSERA_OF_REGISTERS
}
#undef TESSERA_WGMMA_32
#undef TESSERA_WGMMA_64
#undef TESSERA_WGMMA_128
#undef TESSERA_FOUR

// The products that start between begin_products() and commit_products() are one group.
__device__ inline void begin_products() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ inline void commit_products() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// The compiler does not know that a running product changes registers. keep(c) marks c as changed, so that the compiler
// cannot move uses of c across this call.
template <int kN>
__device__ inline void keep(Accumulator<kN>& c) {
#pragma unroll
  for (int n = 0; n < kN / 8; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) asm volatile("" : "+f"(c.at[n][e])::"memory");
  }
}
// The same for a left factor in registers. Call it before begin_products(): the compiler must write the registers
// before that call.
__device__ inline void keep(FragmentA& a) {
#pragma unroll
  for (int i = 0; i < 4; ++i) asm volatile("" : "+r"(a.at[i])::"memory");
}
// Waits until at most the `kPending` latest groups are outstanding. These groups must not write `c`.
template <int kPending, typename... Accumulators>
__device__ inline void wait_for_products(Accumulators&... c) {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
  (keep(c), ...);
}
// Makes the data that this thread wrote to shared memory visible to wgmma and the copy engine (TMA). A barrier must
// follow before other threads start products or copies that read this data.
__device__ inline void publish_tiles() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// The same interface as MmaProducts (mma.cuh), for tiles [64, 64]. The products are asynchronous.
template <typename T>
struct WgmmaProducts {
  using Element = T;
  using Rows = SwizzledRows;
  static constexpr int kWarpsTogether = 4;

  // Starts c = left · rightᵀ. The caller must wait for c.
  __device__ static void multiply_transposed(Accumulator<64>& c, const T* left, const T* right) {
    const uint64_t left_tile = tile_descriptor(left), right_tile = tile_descriptor(right);
    keep(c);
    begin_products();
#pragma unroll
    for (uint32_t d = 0; d < 4; ++d) {
      start_product<T, Inner::along_rows>(c, left_tile + d * kStepInRow, right_tile + d * kStepInRow, d > 0);
    }
    commit_products();
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
    for (int k = 0; k < 4; ++k) keep(a[k]);
    begin_products();
#pragma unroll
    for (uint32_t k = 0; k < 4; ++k) start_product<T>(c, a[k], right_tile + k * kStepOfRows);
    commit_products();
  }

  // Waits until at most the `kPending` latest products are outstanding. These products must not write `c`.
  template <int kPending, typename... Accumulators>
  __device__ static void wait(Accumulators&... c) {
    wait_for_products<kPending>(c...);
  }
  // Makes this thread's writes to the tiles visible to wgmma. Call it before the barrier that comes before the
  // products.
  __device__ static void publish_tiles() {
    cuda::publish_tiles();
  }
};

}  // namespace tessera::cuda
