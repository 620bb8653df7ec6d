// Gathers and scatters rows by index, and computes the gradient of an embedding.
#include <algorithm>

#include "tessera/ops/cuda/cuda_kernels.h"
#include "tessera/ops/cuda/reduce.cuh"
#include "tessera/ops/cuda/types.cuh"

namespace tessera::cuda {
namespace {

constexpr int kThreads = 128;

// y[i] = x[rows[i]], or with kScatter y[rows[i]] = x[i]. One thread block copies one row, which has `units` elements
// of type U. `limit` is the number of rows of the array that rows[i] indexes.
template <typename U, bool kScatter>
__global__ void move_rows_kernel(const U* __restrict__ x, const int32_t* __restrict__ rows, U* __restrict__ y,
                                 int64_t units, int64_t limit) {
  const int64_t i = blockIdx.x, row = rows[i];
  if (row < 0 || row >= limit) __trap();  // a programming error; the CPU's kernels assert the same
  const U* from = x + (kScatter ? i : row) * units;
  U* to = y + (kScatter ? row : i) * units;
  for (int64_t u = threadIdx.x; u < units; u += kThreads) to[u] = from[u];
}

template <bool kScatter>
void move_rows(const Context& context, View x, View rows, View y, int64_t limit) {
  const int64_t count = rows.num_elems();
  if (count == 0) return;
  const int64_t row_bytes = x.shape[1] * static_cast<int64_t>(size_of(x.dtype));
  const auto launch = [&](auto unit) {
    using U = decltype(unit);
    move_rows_kernel<U, kScatter><<<static_cast<unsigned>(count), kThreads, 0, context.stream>>>(
        reinterpret_cast<const U*>(x.data), rows.as<int32_t>(), reinterpret_cast<U*>(y.data),
        row_bytes / static_cast<int64_t>(sizeof(U)), limit);
  };
  const bool aligned = row_bytes % 16 == 0 && aligned_for<uint4>(x.data, 1) && aligned_for<uint4>(y.data, 1);
  if (aligned) {
    launch(uint4{});
  } else {
    launch(uint16_t{});
  }
  check_launch("move_rows_kernel");
}

// ---- embedding's gradient

constexpr int kChunk = 8192;  // rows of d_y in a chunk; one launch handles a chunk

// For each id in a chunk: d_weight[id] += Σ d_y over those rows of the chunk that have this id, in the order of the
// rows. There is one thread block per row. Each thread block compares the id of its row with the ids of all rows of the
// chunk. If its row is the first with this id, the thread block adds up all rows with this id. Otherwise it ends.
// Sorting the ids would take more time than these comparisons.
template <typename T, typename G, int N>
__global__ void embedding_backward_kernel(const int32_t* __restrict__ ids, int count, const T* __restrict__ d_y,
                                          int64_t channels, int64_t vocabulary, G* __restrict__ d_weight) {
  __shared__ uint32_t same[kChunk / kWarp];  // one bit per row: whether the row has the id of this block's row
  __shared__ int num_same;
  const int row = static_cast<int>(blockIdx.x), thread = static_cast<int>(threadIdx.x);
  const int id = ids[row], num_words = (count + kWarp - 1) / kWarp;
  if (id < 0 || id >= vocabulary) __trap();
  for (int word = thread; word < num_words; word += kThreads) same[word] = 0;
  if (thread == 0) num_same = 0;
  __syncthreads();
  bool is_first = true;
  const auto compare = [&](int i, int other) {
    if (other != id) return;  // the usual case
    atomicOr(&same[i / kWarp], 1u << i % kWarp);
    atomicAdd(&num_same, 1);
    is_first = is_first && i >= row;
  };
  // The first num_whole ids are read in groups of four.
  const int num_whole = reinterpret_cast<uintptr_t>(ids) % 16 == 0 ? count / 4 * 4 : 0;
#pragma unroll 4
  for (int i = 4 * thread; i < num_whole; i += 4 * kThreads) {
    const int4 four = *reinterpret_cast<const int4*>(ids + i);
    compare(i, four.x);
    compare(i + 1, four.y);
    compare(i + 2, four.z);
    compare(i + 3, four.w);
  }
  for (int i = num_whole + thread; i < count; i += kThreads) compare(i, ids[i]);
  if (!__syncthreads_and(is_first)) return;

  for (int64_t c = thread * N; c < channels; c += kThreads * N) {
    Acc<T> sum[N] = {};
    for (int word = row / kWarp, left = num_same; left > 0; ++word) {
      for (uint32_t bits = same[word]; bits; bits &= bits - 1, --left) {
        const int64_t from = static_cast<int64_t>(word) * kWarp + __ffs(static_cast<int>(bits)) - 1;
        const auto pack = load_pack<T, N>(d_y + from * channels + c);
#pragma unroll
        for (int j = 0; j < N; ++j) sum[j] += pack[j];
      }
    }
    G* to = d_weight + static_cast<int64_t>(id) * channels + c;
    const auto pack = load_pack<G, N>(to);
    Acc<G> total[N];
#pragma unroll
    for (int j = 0; j < N; ++j) total[j] = pack[j] + sum[j];
    store_pack(to, Pack<G, N>::of(total));
  }
}

}  // namespace

void CudaKernels::gather_rows(View x, View rows, View y) {
  TESSERA_ASSERT(x.dtype == y.dtype && y.shape == (Shape{rows.num_elems(), x.shape[1]}));
  move_rows<false>(context_, x, rows, y, x.shape[0]);
}

void CudaKernels::scatter_rows(View x, View rows, View y) {
  TESSERA_ASSERT(x.dtype == y.dtype && x.shape == (Shape{rows.num_elems(), y.shape[1]}));
  fill(y, 0);
  move_rows<true>(context_, x, rows, y, y.shape[0]);
}

void CudaKernels::embedding_backward(View ids, View d_y, View d_weight) {
  const int64_t num_rows = ids.num_elems(), channels = d_weight.shape[1];
  TESSERA_ASSERT(d_y.shape == (Shape{num_rows, channels}));
  with_float_type(d_y.dtype, [&](auto zero) {
    using T = decltype(zero);
    with_gradient_type<T>(d_weight.dtype, [&](auto zero_gradient) {
      using G = decltype(zero_gradient);
      constexpr int N = kPackOf<T> < 4 ? kPackOf<T> : 4;
      G* target = data_of<G>(d_weight);
      const bool wide = channels % N == 0 && aligned_for<T>(d_y.data, N) && aligned_for<G>(target, N);
      for (int64_t first = 0; first < num_rows; first += kChunk) {
        const int count = static_cast<int>(std::min<int64_t>(kChunk, num_rows - first));
        const int32_t* id = ids.as<int32_t>() + first;
        const T* source = data_of<T>(d_y) + first * channels;
        if (wide) {
          embedding_backward_kernel<T, G, N><<<static_cast<unsigned>(count), kThreads, 0, context_.stream>>>(
              id, count, source, channels, d_weight.shape[0], target);
        } else {
          embedding_backward_kernel<T, G, 1><<<static_cast<unsigned>(count), kThreads, 0, context_.stream>>>(
              id, count, source, channels, d_weight.shape[0], target);
        }
        check_launch("embedding_backward_kernel");
      }
    });
  });
}

}  // namespace tessera::cuda
