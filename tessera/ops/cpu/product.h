// Matrix products on one thread. All matrices are row-major. The CPU kernels divide a product into tiles. Each thread
// computes its tiles with the functions below.
#pragma once

#include <array>
#include <cstdint>
#include <functional>

#include "tessera/base/math.h"

namespace tessera::cpu {

enum class Transpose : bool { no, yes };
enum class Result : bool { set, add };

// The largest tile of multiply_then(). Tiles should begin at multiples of kRowUnit rows and kColumnUnit columns,
// because the products compute blocks of this size.
inline constexpr int64_t kTileRows = 504, kTileColumns = 256, kRowUnit = 14, kColumnUnit = 32;

// The number of elements that a function below may use in `scratch`.
inline constexpr int64_t kProductScratchElems = 4 * kRowUnit * 544 + 512 * kTileColumns + kTileRows * kTileColumns;

// The factors of op(a) [m, k] · op(b) [k, n], k > 0. op transposes a factor if its Transpose is yes. lda and ldb are
// the numbers of elements from one stored row to the next.
template <typename T>
struct Factors {
  Transpose transpose_a, transpose_b;
  int64_t m, n, k;
  const T* a;
  int64_t lda;
  const T* b;
  int64_t ldb;
};

// In this header, T is float or double. kOwnProducts: whether Tessera's own code (packed_product.h) computes products
// of type T. Otherwise CBLAS computes them. In float on AVX-512, Tessera's code reaches five sixths of the processor's
// peak, and OpenBLAS reaches two thirds. Tessera's code adds the terms of an element in the same order for every tile.
// With CBLAS, this order may depend on the shape of the tile.
#if defined(__AVX512F__)
template <typename T>
inline constexpr bool kOwnProducts = sizeof(T) == sizeof(float);
#else
template <typename T>
inline constexpr bool kOwnProducts = false;
#endif

// c [m, n] = the product (Result::set), or c += the product (Result::add).
template <typename T>
void multiply(const Factors<T>& factors, Result result, T* c, int64_t ldc, T* scratch);

// A function that uses a product while the product is in the cache.
template <typename T>
struct Continuation {
  // Called for every finished block of the product. The block has its first element at (row, column) of the product. It
  // is stored in c [rows, columns]. `then` may change c. The contents of c are discarded afterwards.
  std::function<void(int64_t row, int64_t rows, int64_t column, int64_t columns, T* c, int64_t ldc)> then;
  // Arrays [m, n] that `then` reads or writes at the block's place, to be prefetched. Unused entries are null.
  std::array<const T*, 3> touched;
  int64_t ld;  // row stride of these arrays
};

// Computes a product of at most kTileRows × kTileColumns elements, and passes its blocks to the continuation.
template <typename T>
void multiply_then(const Factors<T>& factors, const Continuation<T>& continuation, T* scratch);

// A right factor b [depth, columns] that several products share, depth ≤ kMaxPackedDepth. `transpose`, `at` and `ld`
// describe b as stored (for CBLAS), or its packed copy.
template <typename T>
struct Packed {
  Transpose transpose;
  int64_t depth, columns;
  const T* at;
  int64_t ld;
};
inline constexpr int64_t kMaxPackedDepth = 512;

// The number of elements that pack() needs in `room` for the packed copy. It is 0 for CBLAS, which uses b as stored.
template <typename T>
constexpr int64_t packed_elems(int64_t depth, int64_t columns) {
  return kOwnProducts<T> ? depth * round_up(columns, kColumnUnit) : 0;
}
template <typename T>
Packed<T> pack(Transpose transpose, int64_t depth, int64_t columns, const T* b, int64_t ldb, T* room);

// c [m, columns] = or += a [m, depth] · the first `depth` rows and the first `columns` columns of b. If lda is
// kPackedRowStride, Tessera's code uses the rows of `a` in place. Otherwise it copies them first.
inline constexpr int64_t kPackedRowStride = 544;
template <typename T>
void multiply_packed(int64_t m, int64_t columns, int64_t depth, const T* a, int64_t lda, const Packed<T>& b,
                     Result result, T* c, int64_t ldc, T* scratch);

// Sets the BLAS library of this process (OpenBLAS, MKL or BLIS) to one thread per call. The kernels use their own
// threads, and threads of the library would compete with them for the cores.
void use_one_blas_thread();

// If the address space of the process is limited (ulimit -v), keeps space for the buffers that OpenBLAS maps when
// `num_threads` threads compute their first products, because OpenBLAS tries forever if it gets none. The first product
// releases the space. Throws OutOfMemoryError if the space is too small. Does nothing if Tessera computes the products.
void keep_space_for_blas(int num_threads);

}  // namespace tessera::cpu
