// A block sums a few columns over all rows, so that no second kernel has to add up parts, unless there are very many
// rows.
#include "tessera/ops/cuda/column_sums.h"

#include <algorithm>

#include "tessera/ops/cuda/reduce.cuh"
#include "tessera/ops/cuda/types.cuh"

namespace tessera::cuda {
namespace {

constexpr int kWarps = 32;    // of a block
constexpr int kTogether = 8;  // loads of a thread under way
// Where rows are divided into parts, parts rather than columns make enough blocks, and longer pieces of rows are read.
constexpr int64_t kUndivided = 4096, kPartRows = 1024, kMostParts = 2048;
constexpr int kColumns = 32, kColumnsOfPart = 64;

// A block sums kWidth columns; a warp reads several rows side by side, N columns a lane. Of several parts, gridDim.y,
// the sums go to `parts` [gridDim.y, columns]; of one they are added to `sums`, and those of columns from `split` on to
// `second`.
template <typename T, int N, int kWidth, typename G>
__global__ void __launch_bounds__(kWarps* kWarp)
    column_sums_kernel(const T* __restrict__ x, int64_t num_rows, int64_t part_rows, int columns,
                       Acc<T>* __restrict__ parts, int split, G* __restrict__ sums, G* __restrict__ second) {
  using A = Acc<T>;
  constexpr int kLanes = kWidth / N, kRows = kWarps * kWarp / kLanes;  // lanes of a row, rows of the block at once
  __shared__ A shared[kWarps][kWidth + 1];
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp,
            first = static_cast<int>(blockIdx.x) * kWidth, column = first + lane % kLanes * N;
  A own[N] = {};
  if (column < columns) {
    const int64_t first_row = blockIdx.y * part_rows, end = min(first_row + part_rows, num_rows);
    for (int64_t row = first_row + static_cast<int>(threadIdx.x) / kLanes; row < end; row += kTogether * kRows) {
      Pack<T, N> packs[kTogether] = {};
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        if (row + i * kRows < end) packs[i] = load_pack<T, N>(x + (row + i * kRows) * columns + column);
      }
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
#pragma unroll
        for (int j = 0; j < N; ++j) own[j] += packs[i][j];
      }
    }
  }
#pragma unroll
  for (int j = 0; j < N; ++j) {
#pragma unroll
    for (int offset = kLanes; offset < kWarp; offset *= 2) own[j] += __shfl_xor_sync(kAllLanes, own[j], offset);
    if (lane < kLanes) shared[warp][lane * N + j] = own[j];
  }
  __syncthreads();
#pragma unroll
  for (int c = 0; c < kWidth; c += kWarps) {  // a warp adds up one column at a time
    const A sum = warp_reduce(shared[lane][c + warp], Sum());
    const int summed = first + c + warp;
    if (lane != 0 || summed >= columns) continue;
    if (gridDim.y > 1) {
      parts[static_cast<int64_t>(blockIdx.y) * columns + summed] = sum;
    } else {
      G* const to = summed < split ? sums + summed : second + (summed - split);
      *to = from_acc<G>(to_acc(*to) + static_cast<Acc<G>>(sum));
    }
  }
}

// Calls body(G{}) with the type of sums of T.
template <typename T, typename Body>
void with_sum_type(DType dtype, Body&& body) {
  if constexpr (std::is_same_v<T, float>) {
    if (dtype == DType::f16) return body(Half{});
    if (dtype == DType::bf16) return body(Bf16{});
  }
  with_gradient_type<T>(dtype, body);
}

}  // namespace

void add_column_sums(const Context& context, View x, View sums, View second) {
  const int64_t num_rows = x.shape[0], columns = x.shape[1];
  TESSERA_ASSERT(sums.num_elems() + (second ? second.num_elems() : 0) == columns);
  if (num_rows == 0) return;
  with_float_type(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    using A = Acc<T>;
    const int64_t most = std::min(Context::scratch_elems<A>() / columns, kMostParts);
    const int64_t parts = num_rows <= kUndivided ? 1 : std::max<int64_t>(1, std::min(num_rows / kPartRows, most));
    TESSERA_ASSERT(parts == 1 || x.data != context.scratch);
    with_pack<T>(columns, {x}, [&](auto n) {
      with_sum_type<T>(sums.dtype, [&](auto zero_sum) {
        using G = decltype(zero_sum);
        constexpr int kWide = n > 1 ? kColumnsOfPart : kColumns;  // a row's lanes are of one warp
        const int width = parts > 1 ? kWide : kColumns;
        auto* const kernel = parts > 1 ? column_sums_kernel<T, n, kWide, G> : column_sums_kernel<T, n, kColumns, G>;
        kernel<<<dim3(blocks_for(columns, width), static_cast<unsigned>(parts)), kWarps * kWarp, 0, context.stream>>>(
            data_of<T>(x), num_rows, (num_rows + parts - 1) / parts, static_cast<int>(columns), context.scratch_of<A>(),
            static_cast<int>(sums.num_elems()), data_of<G>(sums), data_of<G>(second));
      });
    });
    check_launch("column_sums_kernel");
    if (parts > 1) add_column_sums(context, {context.scratch, dtype_in_views<A>(), {parts, columns}}, sums, second);
  });
}

}  // namespace tessera::cuda
