// A block sums 32 columns over all rows, so that no second kernel has to add up parts, unless there are very many.
#include "tessera/ops/cuda/column_sums.h"

#include <algorithm>

#include "tessera/ops/cuda/reduce.cuh"
#include "tessera/ops/cuda/types.cuh"

namespace tessera::cuda {
namespace {

constexpr int kColumns = kWarp, kWarps = 32;  // of a block
constexpr int kTogether = 8;                  // loads of a thread under way
constexpr int64_t kPartRows = 2048;           // rows of a part where they are divided

// A warp reads several rows side by side, N columns a lane. Of several parts, gridDim.y, the sums go to `parts`
// [gridDim.y, columns]; of one they are added to `sums`, and those of columns from `split` on to `second`.
template <typename T, int N, typename G>
__global__ void __launch_bounds__(kWarps* kWarp)
    column_sums_kernel(const T* __restrict__ x, int64_t num_rows, int64_t part_rows, int columns,
                       Acc<T>* __restrict__ parts, int split, G* __restrict__ sums, G* __restrict__ second) {
  using A = Acc<T>;
  constexpr int kLanes = kColumns / N, kRows = kWarps * kWarp / kLanes;  // lanes of a row, rows of the block at once
  __shared__ A shared[kWarps][kColumns + 1];
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp,
            first = static_cast<int>(blockIdx.x) * kColumns, column = first + lane % kLanes * N;
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
  const A sum = warp_reduce(shared[lane][warp], Sum());  // a warp adds up one column
  const int summed = first + warp;
  if (lane != 0 || summed >= columns) return;
  if (gridDim.y > 1) {
    parts[static_cast<int64_t>(blockIdx.y) * columns + summed] = sum;
    return;
  }
  G* const to = summed < split ? sums + summed : second + (summed - split);
  *to = from_acc<G>(to_acc(*to) + static_cast<Acc<G>>(sum));
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
    const int64_t parts = num_rows <= 2 * kPartRows ? 1
                                                    : std::clamp<int64_t>(Context::scratch_elems<A>() / columns, 1,
                                                                          std::min(num_rows / kPartRows, kPartRows));
    TESSERA_ASSERT(parts == 1 || x.data != context.scratch);
    with_pack<T>(columns, {x}, [&](auto n) {
      with_sum_type<T>(sums.dtype, [&](auto zero_sum) {
        using G = decltype(zero_sum);
        column_sums_kernel<T, n, G>
            <<<dim3(blocks_for(columns, kColumns), static_cast<unsigned>(parts)), kWarps * kWarp, 0, context.stream>>>(
                data_of<T>(x), num_rows, (num_rows + parts - 1) / parts, static_cast<int>(columns),
                context.scratch_of<A>(), static_cast<int>(sums.num_elems()), data_of<G>(sums), data_of<G>(second));
      });
    });
    check_launch("column_sums_kernel");
    if (parts > 1) add_column_sums(context, {context.scratch, dtype_in_views<A>(), {parts, columns}}, sums, second);
  });
}

}  // namespace tessera::cuda
