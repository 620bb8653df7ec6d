// Root mean square norm. A row is read once (norm_rows.cuh).
#include "tessera/ops/cuda/column_sums.h"
#include "tessera/ops/cuda/norm.h"
#include "tessera/ops/cuda/norm_rows.cuh"

namespace tessera::cuda {
namespace {

// With one warp per row, in small blocks, weights are loaded early, so that they arrive during the sum.
template <typename T, int N, int kThreads>
__global__ void __launch_bounds__(kThreads)
    rms_norm_forward_kernel(const T* x, const T* __restrict__ weight, Acc<T> epsilon, T* y, Acc<T>* __restrict__ rstds,
                            int64_t num_rows, int channels) {
  using A = Acc<T>;
  constexpr bool kEarly = kThreads <= kSmallBlock;
  __shared__ A shared[kMaxWarps];
  const int64_t row = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  if (row >= num_rows) return;  // complete warps; a row of several warps has its own block
  Pack<T, N> packs[kForwardPacks], weights[kForwardPacks];
  for_packs<N, kForwardPacks>(channels, [&](int v, int c) {
    packs[v] = load_pack<T, N>(x + row * channels + c);
    if constexpr (kEarly) weights[v] = load_pack<T, N>(weight + c);
  });
  A squares = 0;
  for_packs<N, kForwardPacks>(channels, [&](int v, int) {
#pragma unroll
    for (int j = 0; j < N; ++j) squares += packs[v][j] * packs[v][j];
  });
  const int warps = static_cast<int>(blockDim.x) / kWarp;
  const A rstd = A(1) / sqrt(block_reduce(squares, Sum(), shared, warps) / static_cast<A>(channels) + epsilon);
  for_packs<N, kForwardPacks>(channels, [&](int v, int c) {
    if constexpr (!kEarly) weights[v] = load_pack<T, N>(weight + c);
    A values[N];
#pragma unroll
    for (int j = 0; j < N; ++j) values[j] = packs[v][j] * rstd * weights[v][j];
    store_pack(y + row * channels + c, Pack<T, N>::of(values));
  });
  if (rstds && threadIdx.x == 0) rstds[row] = rstd;
}

// A thread's data of a row during the backward pass.
template <typename T, int N, int kPacks>
struct BackwardRow {
  Acc<T> rstd = 0;
  Pack<T, N> gradients[kPacks] = {}, values[kPacks] = {}, added[kPacks] = {};

  __device__ void load(const T* d_y, const T* x, const Acc<T>* rstds, const T* residual, int64_t row, int channels) {
    rstd = rstds[row];
    for_packs<N, kPacks>(channels, [&](int v, int c) {
      gradients[v] = load_pack<T, N>(d_y + row * channels + c);
      values[v] = load_pack<T, N>(x + row * channels + c);
      if (residual) added[v] = load_pack<T, N>(residual + row * channels + c);
    });
  }
};

// With x̂ = x·rstd and g = d_y∘weight: d_x = residual + rstd·(g − x̂·Σ(g∘x̂)/C). gridDim.x · blockDim.y rows are
// processed at a time. A block has the rows at a stride of gridDim.x, and loads the next rows while it computes. It
// writes its sums Σ d_y∘x̂ to partial [gridDim.x, C]. y, unless null, gets the norm's output again.
template <typename T, int N, int kPacks, int kThreads>
__global__ void __launch_bounds__(kThreads)
    rms_norm_backward_kernel(const T* d_y, const T* x, const T* __restrict__ weight, const Acc<T>* __restrict__ rstds,
                             const T* residual, T* d_x, T* __restrict__ y, Acc<T>* __restrict__ partial,
                             int64_t num_rows, int channels) {
  using A = Acc<T>;
  extern __shared__ __align__(16) unsigned char dynamic_shared[];
  A* const exchange = reinterpret_cast<A*>(dynamic_shared);  // [blockDim.y, C], only with several rows per block
  // Two sets of the warps' sums: a fast warp must not overwrite values that a slow one still reads.
  __shared__ A shared[2][kThreads / kWarp];
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warps_of_row = static_cast<int>(blockDim.x) / kWarp,
            first_warp = static_cast<int>(threadIdx.y) * warps_of_row,
            warp = first_warp + static_cast<int>(threadIdx.x) / kWarp;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.y;
  Pack<T, N> weights[kPacks] = {};
  A weight_sums[kPacks][N] = {};
  for_packs<N, kPacks>(channels, [&](int v, int c) { weights[v] = load_pack<T, N>(weight + c); });
  BackwardRow<T, N, kPacks> next;
  int64_t row = static_cast<int64_t>(threadIdx.y) * gridDim.x + blockIdx.x;
  if (row < num_rows) next.load(d_y, x, rstds, residual, row, channels);
  // The last rows of a block may not exist. Their threads continue because of the barriers.
  for (int turn = 0; row - static_cast<int64_t>(threadIdx.y) * gridDim.x < num_rows; row += stride, turn ^= 1) {
    BackwardRow<T, N, kPacks> now = next;
    if (row + stride < num_rows) {
      next.load(d_y, x, rstds, residual, row + stride, channels);
    } else {
      next = {};  // adds nothing to the sums
    }
    A sum = 0;
    for_packs<N, kPacks>(channels, [&](int v, int) {
#pragma unroll
      for (int j = 0; j < N; ++j) {
        const A product = now.gradients[v][j] * (now.values[v][j] * now.rstd);
        sum += product * weights[v][j];
        weight_sums[v][j] += product;
      }
    });
    sum = warp_reduce(sum, Sum());
    if (warps_of_row > 1) {
      if (lane == 0) shared[turn][warp] = sum;
      __syncthreads();
      sum = 0;
      for (int w = first_warp; w < first_warp + warps_of_row; ++w) sum += shared[turn][w];
    }
    if (row >= num_rows) continue;
    const A mean = sum / static_cast<A>(channels);
    for_packs<N, kPacks>(channels, [&](int v, int c) {
      A results[N];
#pragma unroll
      for (int j = 0; j < N; ++j) {
        const A normal = now.values[v][j] * now.rstd;
        results[j] = now.added[v][j] + now.rstd * (now.gradients[v][j] * weights[v][j] - normal * mean);
      }
      store_pack(d_x + row * channels + c, Pack<T, N>::of(results));
      if (!y) return;
#pragma unroll
      for (int j = 0; j < N; ++j) results[j] = now.values[v][j] * now.rstd * weights[v][j];
      store_pack(y + row * channels + c, Pack<T, N>::of(results));
    });
  }
  const int rows = static_cast<int>(blockDim.y);
  A* const block_sums = partial + static_cast<int64_t>(blockIdx.x) * channels;
  A* const mine = rows > 1 ? exchange + static_cast<int>(threadIdx.y) * channels : block_sums;
  for_packs<N, kPacks>(channels, [&](int v, int c) { store_pack(mine + c, Pack<A, N>::of(weight_sums[v])); });
  if (rows == 1) return;
  __syncthreads();
  const int thread = static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x);
  for (int c = thread; c < channels; c += static_cast<int>(blockDim.x) * rows) {
    A sum = 0;
    for (int r = 0; r < rows; ++r) sum += exchange[r * channels + c];
    block_sums[c] = sum;
  }
}

}  // namespace

void rms_norm_forward(const Context& context, View x, View weight, double epsilon, View y, View rstd) {
  const int64_t num_rows = x.shape[0], channels = x.shape[1];
  TESSERA_ASSERT(y.shape == x.shape && weight.num_elems() == channels);
  TESSERA_ASSERT(!rstd || rstd.num_elems() == num_rows);
  if (num_rows == 0) return;
  with_float_type(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    with_pack<T>(channels, {x, weight, y}, [&](auto n) {
      const NormRows rows = forward_rows(channels, n);
      auto* const kernel = rows.warps * rows.rows * kWarp <= kSmallBlock
                               ? rms_norm_forward_kernel<T, n, kSmallBlock>
                               : rms_norm_forward_kernel<T, n, kMaxWarps * kWarp>;
      kernel<<<blocks_for(num_rows, rows.rows), rows.block(), 0, context.stream>>>(
          data_of<T>(x), data_of<T>(weight), static_cast<Acc<T>>(epsilon), data_of<T>(y), data_of<Acc<T>>(rstd),
          num_rows, static_cast<int>(channels));
    });
  });
  check_launch("rms_norm_forward_kernel");
}

void rms_norm_backward(const Context& context, View d_y, View x, View weight, View rstd, View residual, View d_x,
                       View d_weight, View y) {
  const int64_t num_rows = x.shape[0], channels = x.shape[1];
  TESSERA_ASSERT(d_y.shape == x.shape && d_x.shape == x.shape && weight.num_elems() == channels);
  TESSERA_ASSERT(rstd.num_elems() == num_rows && (!residual || residual.shape == x.shape));
  TESSERA_ASSERT((!d_weight || d_weight.num_elems() == channels) && (!y || y.shape == x.shape));
  if (num_rows == 0) return;
  with_float_type(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    using A = Acc<T>;
    int64_t blocks = 0;
    with_pack<T>(channels, {d_y, x, weight, residual, d_x, y}, [&](auto n) {
      const auto launch = [&](auto packs, auto threads) {
        // Rows of many warps have no room in shared memory for each other's sums.
        const NormRows rows = backward_rows(channels, n * packs, packs == 1 ? threads / kWarp : 1);
        blocks = std::min<int64_t>({num_rows, context.num_multiprocessors, Context::scratch_elems<A>() / channels});
        const size_t shared = rows.rows > 1 ? static_cast<size_t>(rows.rows * channels) * sizeof(A) : 0;
        auto* const kernel = rms_norm_backward_kernel<T, n, packs, threads>;
        allow_shared(kernel, packs == 1 ? threads * n * sizeof(A) : 0);  // the maximum of all widths
        kernel<<<static_cast<unsigned>(blocks), rows.block(), shared, context.stream>>>(
            data_of<T>(d_y), data_of<T>(x), data_of<T>(weight), data_of<A>(rstd), data_of<T>(residual), data_of<T>(d_x),
            data_of<T>(y), context.scratch_of<A>(), num_rows, static_cast<int>(channels));
      };
      using std::integral_constant;
      if (warps_for(channels, n) <= kBackwardThreads / kWarp) {
        launch(integral_constant<int, 1>(), integral_constant<int, kBackwardThreads>());
      } else {  // up to n · kPacks · 1024 channels
        constexpr int kWide = (sizeof(T) == 2 && n > 1) ? 2 : 4;
        launch(integral_constant<int, kWide>(), integral_constant<int, 1024>());
      }
    });
    check_launch("rms_norm_backward_kernel");
    if (!d_weight) return;
    const ColumnSums sums{{context.scratch, dtype_in_views<A>(), {blocks, channels}}, d_weight, {}};
    add_column_sums(context, {&sums, 1});
  });
}

}  // namespace tessera::cuda
