// If an array has at most kUndivided rows, one launch suffices: each thread block sums a few columns over all rows.
// Otherwise the rows are divided into parts. The first launch sums each part, and a second launch adds these sums.
#include "tessera/ops/cuda/column_sums.h"

#include <algorithm>
#include <vector>

#include "tessera/ops/cuda/cuda_kernels.h"
#include "tessera/ops/cuda/reduce.cuh"
#include "tessera/ops/cuda/types.cuh"

namespace tessera::cuda {
namespace {

constexpr int kWarps = 32;    // per thread block
constexpr int kTogether = 8;  // outstanding loads of a thread
// A thread block usually sums kColumns columns. If each of its threads loads several elements with one instruction, the
// thread block sums kWideColumns columns in two cases:
// - The rows are divided into parts. Each part has its own thread blocks, so the launch has enough for all
//   multiprocessors.
// - The launch's arrays have more than kMostColumns columns together. With kColumns columns per thread block, there
//   would be more thread blocks than multiprocessors, and each multiprocessor runs only one of these blocks at a time.
constexpr int64_t kUndivided = 4096, kPartRows = 1024, kMostParts = 2048;
constexpr int kColumns = 32, kWideColumns = 64, kMostColumns = 4096;

// The arrays of a launch. All have the same number of rows. The sums of an array's columns [0, split) are added to
// `sums`, and the sums of its other columns to `second`.
constexpr int kMostArrays = 2;
template <typename T, typename G>
struct SummedColumns {
  const T* x;
  int columns, split, first_block;
  G *sums, *second;
};
template <typename T, typename G>
struct AllColumns {
  SummedColumns<T, G> arrays[kMostArrays];
  int num_arrays;
};

// A thread block sums kWidth columns. Each lane reads N columns of a row, so kWidth / N lanes read a row together. If
// the rows are divided into parts, gridDim.y is the number of parts. The launch then has only one array, and the sums
// of each part are stored in `parts` [gridDim.y, columns].
template <typename T, int N, int kWidth, typename G>
__global__ void __launch_bounds__(kWarps* kWarp)
    column_sums_kernel(AllColumns<T, G> all, int64_t num_rows, int64_t part_rows, Acc<T>* __restrict__ parts) {
  using A = Acc<T>;
  constexpr int kLanes = kWidth / N, kRows = kWarps * kWarp / kLanes;  // lanes per row, rows per thread block at a time
  __shared__ A shared[kWarps][kWidth + 1];
  const int block = static_cast<int>(blockIdx.x);
  // A condition selects the array. With an index, the compiler would put `all` into local memory.
  const bool is_second = all.num_arrays > 1 && block >= all.arrays[1].first_block;
  const SummedColumns<T, G> array = is_second ? all.arrays[1] : all.arrays[0];
  const T* __restrict__ const x = array.x;
  const int columns = array.columns, first = (block - array.first_block) * kWidth,
            lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp,
            column = first + lane % kLanes * N;
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
  for (int c = 0; c < kWidth; c += kWarps) {  // a warp adds one column at a time
    const A sum = warp_reduce(shared[lane][c + warp], Sum());
    const int summed = first + c + warp;
    if (lane != 0 || summed >= columns) continue;
    if (gridDim.y > 1) {
      parts[static_cast<int64_t>(blockIdx.y) * columns + summed] = sum;
    } else {
      G* const to = summed < array.split ? array.sums + summed : array.second + (summed - array.split);
      *to = from_acc<G>(to_acc(*to) + static_cast<Acc<G>>(sum));
    }
  }
}

// Calls body(G{}) for sums of type G, which `dtype` names. T is the type of the summed elements.
template <typename T, typename Body>
void with_sum_type(DType dtype, Body&& body) {
  if constexpr (std::is_same_v<T, float>) {
    if (dtype == DType::f16) return body(Half{});
    if (dtype == DType::bf16) return body(Bf16{});
  }
  with_gradient_type<T>(dtype, body);
}

}  // namespace

void add_column_sums(const Context& context, std::span<const ColumnSums> arrays) {
  const View x = arrays[0].x;
  const int64_t num_rows = x.shape[0];
  if (num_rows == 0) return;
  // Processes the arrays one by one if the rows must be divided into parts, or if there are more than kMostArrays
  // arrays.
  if (arrays.size() > 1 && (num_rows > kUndivided || arrays.size() > kMostArrays)) {
    for (const ColumnSums& one : arrays) add_column_sums(context, {&one, 1});
    return;
  }
  const View last = arrays.back().x, last_sums = arrays.back().sums;
  TESSERA_ASSERT(last.dtype == x.dtype && last.shape[0] == num_rows && last_sums.dtype == arrays[0].sums.dtype);
  with_float_type(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    using A = Acc<T>;
    const int64_t columns = x.shape[1], most = std::min(Context::scratch_elems<A>() / columns, kMostParts);
    const int64_t parts = num_rows <= kUndivided ? 1 : std::max<int64_t>(1, std::min(num_rows / kPartRows, most));
    TESSERA_ASSERT(parts == 1 || x.data != context.scratch);
    with_pack<T>(columns | last.shape[1], {x, last}, [&](auto n) {  // a power of two that divides a | b divides a and b
      with_sum_type<T>(last_sums.dtype, [&](auto zero_sum) {
        using G = decltype(zero_sum);
        constexpr int kWide = n > 1 ? kWideColumns : kColumns;  // kWide / n lanes read a row: at most one warp
        int64_t all_columns = 0;
        for (const ColumnSums& one : arrays) all_columns += one.x.shape[1];
        const bool wide = parts > 1 || all_columns > kMostColumns;
        const int width = wide ? kWide : kColumns;
        AllColumns<T, G> all{};
        int blocks = 0;
        for (const auto& [of, sums, second] : arrays) {
          const auto own_columns = static_cast<int>(of.shape[1]);
          TESSERA_ASSERT(sums.num_elems() + (second ? second.num_elems() : 0) == own_columns);
          all.arrays[all.num_arrays++] = {data_of<T>(of), own_columns,      static_cast<int>(sums.num_elems()),
                                          blocks,         data_of<G>(sums), data_of<G>(second)};
          blocks += (own_columns + width - 1) / width;
        }
        auto* const kernel = wide ? column_sums_kernel<T, n, kWide, G> : column_sums_kernel<T, n, kColumns, G>;
        kernel<<<dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(parts)), kWarps * kWarp, 0,
                 context.stream>>>(all, num_rows, (num_rows + parts - 1) / parts, context.scratch_of<A>());
      });
    });
    check_launch("column_sums_kernel");
    if (parts == 1) return;
    const ColumnSums of_parts{
        {context.scratch, dtype_in_views<A>(), {parts, columns}}, arrays[0].sums, arrays[0].second};
    add_column_sums(context, {&of_parts, 1});
  });
}

void CudaKernels::linear_backward_bias(std::span<const BiasGradient> gradients) {
  std::vector<ColumnSums> all;
  for (const auto& [d_y, d_bias] : gradients) all.push_back({d_y, d_bias, {}});
  if (!all.empty()) add_column_sums(context_, all);
}

}  // namespace tessera::cuda
