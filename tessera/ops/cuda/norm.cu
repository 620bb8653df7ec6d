// Layer norm. A row is in the registers of one warp, or of the warps of one block, and is read once.
#include <algorithm>

#include "tessera/ops/cuda/column_sums.h"
#include "tessera/ops/cuda/norm.h"
#include "tessera/ops/cuda/norm_rows.cuh"

namespace tessera::cuda {
namespace {

// mean = Σx / C, variance = Σ(x − mean)² / C in two passes over registers, without cancellation.
// With one warp per row, in small blocks, weights and biases are loaded early, so that they arrive during the sums.
// With more warps there are too few registers.
template <typename T, int N, int kThreads>
__global__ void __launch_bounds__(kThreads)
    norm_forward_kernel(const T* x, const T* __restrict__ weight, const T* __restrict__ bias, Acc<T> epsilon, T* y,
                        Acc<T>* __restrict__ stats, int64_t num_rows, int channels) {
  using A = Acc<T>;
  constexpr bool kEarly = kThreads <= kSmallBlock;
  __shared__ A shared[2][kMaxWarps];
  const int64_t row = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  if (row >= num_rows) return;  // complete warps; a row of several warps has its own block
  const int warps = static_cast<int>(blockDim.x) / kWarp;
  Pack<T, N> packs[kForwardPacks], weights[kForwardPacks], biases[kForwardPacks];
  for_packs<N, kForwardPacks>(channels, [&](int v, int c) {
    packs[v] = load_pack<T, N>(x + row * channels + c);
    if constexpr (kEarly) {
      weights[v] = load_pack<T, N>(weight + c);
      biases[v] = load_pack<T, N>(bias + c);
    }
  });
  A sum = 0;
  for_packs<N, kForwardPacks>(channels, [&](int v, int) {
#pragma unroll
    for (int j = 0; j < N; ++j) sum += packs[v][j];
  });
  const A mean = block_reduce(sum, Sum(), shared[0], warps) / static_cast<A>(channels);
  A squares = 0;
  for_packs<N, kForwardPacks>(channels, [&](int v, int) {
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const A centred = packs[v][j] - mean;
      squares += centred * centred;
    }
  });
  const A rstd = A(1) / sqrt(block_reduce(squares, Sum(), shared[1], warps) / static_cast<A>(channels) + epsilon);
  for_packs<N, kForwardPacks>(channels, [&](int v, int c) {
    if constexpr (!kEarly) {
      weights[v] = load_pack<T, N>(weight + c);
      biases[v] = load_pack<T, N>(bias + c);
    }
    A values[N];
#pragma unroll
    for (int j = 0; j < N; ++j) values[j] = (packs[v][j] - mean) * rstd * weights[v][j] + biases[v][j];
    store_pack(y + row * channels + c, Pack<T, N>::of(values));
  });
  if (stats && threadIdx.x == 0) {
    stats[row * 2] = mean;
    stats[row * 2 + 1] = rstd;
  }
}

// A thread's data of a row during the backward pass.
template <typename T, int N, int kPacks>
struct BackwardRow {
  Acc<T> mean = 0, rstd = 0;
  Pack<T, N> gradients[kPacks] = {}, values[kPacks] = {}, added[kPacks] = {};

  __device__ void load(const T* d_y, const T* x, const Acc<T>* stats, const T* residual, int64_t row, int channels) {
    mean = stats[row * 2];
    rstd = stats[row * 2 + 1];
    for_packs<N, kPacks>(channels, [&](int v, int c) {
      gradients[v] = load_pack<T, N>(d_y + row * channels + c);
      values[v] = load_pack<T, N>(x + row * channels + c);
      if (residual) added[v] = load_pack<T, N>(residual + row * channels + c);
    });
  }
};

// With x̂ = (x − mean)·rstd and g = d_y∘weight: d_x = residual + rstd·(g − Σg/C − x̂·Σ(g∘x̂)/C). gridDim.x · blockDim.y
// rows are processed at a time. A block has the rows at a stride of gridDim.x, and loads the next rows while it
// computes. It writes its sums Σ d_y∘x̂ and Σ d_y to partial [gridDim.x, 2, C]. A thread has few channels, so its sums
// leave registers for many warps. y, unless null, gets the norm's output again.
template <typename T, int N, int kPacks, int kThreads>
__global__ void __launch_bounds__(kThreads)
    norm_backward_kernel(const T* d_y, const T* x, const T* __restrict__ weight, const T* __restrict__ bias,
                         const Acc<T>* __restrict__ stats, const T* residual, T* d_x, T* __restrict__ y,
                         Acc<T>* __restrict__ partial, int64_t num_rows, int channels) {
  using A = Acc<T>;
  extern __shared__ __align__(16) unsigned char dynamic_shared[];
  A* const exchange = reinterpret_cast<A*>(dynamic_shared);  // [blockDim.y, 2, C], only with several rows per block
  // Two sets of the warps' sums: a fast warp must not overwrite values that a slow one still reads.
  __shared__ A shared[2][2][kThreads / kWarp];
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warps_of_row = static_cast<int>(blockDim.x) / kWarp,
            first_warp = static_cast<int>(threadIdx.y) * warps_of_row,
            warp = first_warp + static_cast<int>(threadIdx.x) / kWarp;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.y;
  Pack<T, N> weights[kPacks] = {};
  A weight_sums[kPacks][N] = {}, bias_sums[kPacks][N] = {};
  for_packs<N, kPacks>(channels, [&](int v, int c) { weights[v] = load_pack<T, N>(weight + c); });
  BackwardRow<T, N, kPacks> next;
  int64_t row = static_cast<int64_t>(threadIdx.y) * gridDim.x + blockIdx.x;
  if (row < num_rows) next.load(d_y, x, stats, residual, row, channels);
  // The last rows of a block may not exist. Their threads continue because of the barriers.
  for (int turn = 0; row - static_cast<int64_t>(threadIdx.y) * gridDim.x < num_rows; row += stride, turn ^= 1) {
    BackwardRow<T, N, kPacks> now = next;
    if (row + stride < num_rows) {
      next.load(d_y, x, stats, residual, row + stride, channels);
    } else {
      next = {};  // adds nothing to the sums
    }
    A sum_g = 0, sum_gx = 0;
    for_packs<N, kPacks>(channels, [&](int v, int) {
#pragma unroll
      for (int j = 0; j < N; ++j) {
        const A gradient = now.gradients[v][j], normal = (now.values[v][j] - now.mean) * now.rstd;
        const A g = gradient * weights[v][j];
        sum_g += g;
        sum_gx += g * normal;
        weight_sums[v][j] += gradient * normal;
        bias_sums[v][j] += gradient;
      }
    });
    sum_g = warp_reduce(sum_g, Sum());
    sum_gx = warp_reduce(sum_gx, Sum());
    if (warps_of_row > 1) {
      if (lane == 0) {
        shared[turn][0][warp] = sum_g;
        shared[turn][1][warp] = sum_gx;
      }
      __syncthreads();
      sum_g = sum_gx = 0;
      for (int w = first_warp; w < first_warp + warps_of_row; ++w) {
        sum_g += shared[turn][0][w];
        sum_gx += shared[turn][1][w];
      }
    }
    if (row >= num_rows) continue;
    const A mean_g = sum_g / static_cast<A>(channels), mean_gx = sum_gx / static_cast<A>(channels);
    for_packs<N, kPacks>(channels, [&](int v, int c) {
      A d_values[N];
#pragma unroll
      for (int j = 0; j < N; ++j) {
        const A normal = (now.values[v][j] - now.mean) * now.rstd;
        d_values[j] = now.added[v][j] + now.rstd * (now.gradients[v][j] * weights[v][j] - mean_g - normal * mean_gx);
      }
      store_pack(d_x + row * channels + c, Pack<T, N>::of(d_values));
      if (!y) return;
      const auto biases = load_pack<T, N>(bias + c);
#pragma unroll
      for (int j = 0; j < N; ++j) {
        d_values[j] = (now.values[v][j] - now.mean) * now.rstd * weights[v][j] + biases[j];
      }
      store_pack(y + row * channels + c, Pack<T, N>::of(d_values));
    });
  }
  const int rows = static_cast<int>(blockDim.y), width = 2 * channels;
  A* const block_sums = partial + static_cast<int64_t>(blockIdx.x) * width;
  A* const mine = rows > 1 ? exchange + static_cast<int>(threadIdx.y) * width : block_sums;
  for_packs<N, kPacks>(channels, [&](int v, int c) {
    store_pack(mine + c, Pack<A, N>::of(weight_sums[v]));
    store_pack(mine + channels + c, Pack<A, N>::of(bias_sums[v]));
  });
  if (rows == 1) return;
  __syncthreads();
  constexpr int kTogether = N < kPackOf<A> ? N : kPackOf<A>;
  const int thread = static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x);
  for (int c = thread * kTogether; c < width; c += static_cast<int>(blockDim.x) * rows * kTogether) {
    A sums[kTogether] = {};
    for (int y = 0; y < rows; ++y) {
      const auto pack = load_pack<A, kTogether>(exchange + y * width + c);
#pragma unroll
      for (int j = 0; j < kTogether; ++j) sums[j] += pack[j];
    }
    store_pack(block_sums + c, Pack<A, kTogether>::of(sums));
  }
}

}  // namespace

void layer_norm_forward(const Context& context, View x, View weight, View bias, double epsilon, View y, View stats) {
  const int64_t num_rows = x.shape[0], channels = x.shape[1];
  TESSERA_ASSERT(y.shape == x.shape && weight.num_elems() == channels && bias.num_elems() == channels);
  TESSERA_ASSERT(!stats || stats.shape == (Shape{num_rows, 2}));
  if (num_rows == 0) return;
  with_float_type(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    with_pack<T>(channels, {x, weight, bias, y}, [&](auto n) {
      const NormRows rows = forward_rows(channels, n);
      auto* const kernel = rows.warps * rows.rows * kWarp <= kSmallBlock ? norm_forward_kernel<T, n, kSmallBlock>
                                                                         : norm_forward_kernel<T, n, kMaxWarps * kWarp>;
      kernel<<<blocks_for(num_rows, rows.rows), rows.block(), 0, context.stream>>>(
          data_of<T>(x), data_of<T>(weight), data_of<T>(bias), static_cast<Acc<T>>(epsilon), data_of<T>(y),
          data_of<Acc<T>>(stats), num_rows, static_cast<int>(channels));
    });
  });
  check_launch("norm_forward_kernel");
}

void layer_norm_backward(const Context& context, View d_y, View x, View weight, View bias, View stats, View residual,
                         View d_x, View d_weight, View d_bias, View y) {
  const int64_t num_rows = x.shape[0], channels = x.shape[1];
  TESSERA_ASSERT(d_y.shape == x.shape && d_x.shape == x.shape && weight.num_elems() == channels);
  TESSERA_ASSERT(stats.shape == (Shape{num_rows, 2}) && (!residual || residual.shape == x.shape));
  TESSERA_ASSERT(d_weight.num_elems() == channels && d_bias.num_elems() == channels);
  TESSERA_ASSERT(!y || (y.shape == x.shape && bias.num_elems() == channels));
  if (num_rows == 0) return;
  with_float_type(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    using A = Acc<T>;
    int64_t blocks = 0;
    with_pack<T>(channels, {d_y, x, weight, bias, residual, d_x, y}, [&](auto n) {
      const auto launch = [&](auto packs, auto threads) {
        // Rows of many warps have no room in shared memory for each other's sums.
        const NormRows rows = backward_rows(channels, n * packs, packs == 1 ? threads / kWarp : 1);
        blocks =
            std::min<int64_t>({num_rows, context.num_multiprocessors, Context::scratch_elems<A>() / (2 * channels)});
        const size_t shared = rows.rows > 1 ? static_cast<size_t>(rows.rows * 2 * channels) * sizeof(A) : 0;
        auto* const kernel = norm_backward_kernel<T, n, packs, threads>;
        allow_shared(kernel, packs == 1 ? threads * n * 2 * sizeof(A) : 0);  // the maximum of all widths
        kernel<<<static_cast<unsigned>(blocks), rows.block(), shared, context.stream>>>(
            data_of<T>(d_y), data_of<T>(x), data_of<T>(weight), data_of<T>(bias), data_of<A>(stats),
            data_of<T>(residual), data_of<T>(d_x), data_of<T>(y), context.scratch_of<A>(), num_rows,
            static_cast<int>(channels));
      };
      using std::integral_constant;
      if (warps_for(channels, n) <= kBackwardThreads / kWarp) {
        launch(integral_constant<int, 1>(), integral_constant<int, kBackwardThreads>());
      } else {  // up to n · kPacks · 1024 channels
        constexpr int kWide = (sizeof(T) == 2 && n > 1) ? 2 : 4;
        launch(integral_constant<int, kWide>(), integral_constant<int, 1024>());
      }
    });
    check_launch("norm_backward_kernel");
    const ColumnSums sums{{context.scratch, dtype_in_views<A>(), {blocks, 2 * channels}}, d_weight, d_bias};
    add_column_sums(context, {&sums, 1});
  });
}

}  // namespace tessera::cuda
