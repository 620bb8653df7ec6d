// Layer norm and root mean square norm. The contracts are in ops/kernels.h. A row is in the registers of one warp, or
// of several warps of one thread block. Each kernel therefore reads a row from global memory only once.
#include <algorithm>

#include "tessera/ops/cuda/column_sums.h"
#include "tessera/ops/cuda/cuda_kernels.h"
#include "tessera/ops/cuda/float8.cuh"
#include "tessera/ops/cuda/norm_rows.cuh"

namespace tessera::cuda {
namespace {

// Computes the statistics of each row, and y. LayerRow needs the mean Σx / C, and then the variance Σ(x − mean)² / C.
// RmsRow needs only Σx² / C. The variance takes a second pass over the registers, because a formula with one pass
// (Σx² / C − mean²) loses digits by cancellation. Small blocks load the parameters before they compute the sums, so
// that loads and sums overlap. In larger blocks, a thread has too few registers for this.
template <template <typename> class Row, typename T, int N, int kThreads>
__global__ void __launch_bounds__(kThreads)
    norm_forward_kernel(const T* x, const T* __restrict__ weight, const T* __restrict__ bias, Acc<T> epsilon, T* y,
                        Float8Target y8, Acc<T>* __restrict__ stats, int64_t num_rows, int channels) {
  using A = Acc<T>;
  constexpr bool kEarly = kThreads <= kSmallBlock;
  __shared__ A shared[2][kMaxWarps];
  const int64_t row = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  // No barrier below waits for a thread that has returned: a row of several warps has its own block, so either all
  // threads of this block return or none. For rows of one warp, block_reduce() has no barrier.
  if (row >= num_rows) return;
  const int warps = static_cast<int>(blockDim.x) / kWarp;
  Pack<T, N> packs[kForwardPacks], weights[kForwardPacks], biases[kForwardPacks] = {};
  const auto load_parameters = [&](int v, int c) {
    weights[v] = load_pack<T, N>(weight + c);
    if constexpr (Row<A>::kParameters > 1) biases[v] = load_pack<T, N>(bias + c);
  };
  for_packs<N, kForwardPacks>(channels, [&](int v, int c) {
    packs[v] = load_pack<T, N>(x + row * channels + c);
    if constexpr (kEarly) load_parameters(v, c);
  });
  Row<A> found;
  if constexpr (Row<A>::kIsCentred) {
    A sum = 0;
    for_packs<N, kForwardPacks>(channels, [&](int v, int) {
#pragma unroll
      for (int j = 0; j < N; ++j) sum += packs[v][j];
    });
    found.mean = block_reduce(sum, Sum(), shared[0], warps) / static_cast<A>(channels);
  }
  A squares = 0;
  for_packs<N, kForwardPacks>(channels, [&](int v, int) {
#pragma unroll
    for (int j = 0; j < N; ++j) {
      A centred = packs[v][j];
      if constexpr (Row<A>::kIsCentred) centred -= found.mean;
      squares += centred * centred;
    }
  });
  found.rstd = A(1) / sqrt(block_reduce(squares, Sum(), shared[1], warps) / static_cast<A>(channels) + epsilon);
  const auto output = [&](int v, int c) {
    if constexpr (!kEarly) load_parameters(v, c);
    A values[N];
#pragma unroll
    for (int j = 0; j < N; ++j) values[j] = found.y(packs[v][j], weights[v][j], biases[v][j]);
    return Pack<T, N>::of(values);
  };
  if (!y8.values) {
    for_packs<N, kForwardPacks>(channels, [&](int v, int c) { store_pack(y + row * channels + c, output(v, c)); });
  } else if constexpr (std::is_same_v<T, Bf16> && N == kFloat8Pack) {
#pragma unroll
    for (int v = 0; v < kForwardPacks; ++v) {  // threads without a pack take part, too
      const int c = (v * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x)) * N;
      const bool inside = c < channels;
      round_in_row(inside ? output(v, c) : Pack<T, N>{}, inside, row, c, y8);
    }
  }
  if (stats && threadIdx.x == 0) found.store(stats, row);
}

// A thread's data of a row during the backward pass.
template <typename Row, typename T, int N, int kPacks>
struct BackwardRow {
  Row found;  // the statistics
  Pack<T, N> gradients[kPacks] = {}, values[kPacks] = {}, added[kPacks] = {};

  __device__ void load(const T* d_y, const T* x, const Acc<T>* stats, const T* residual, int64_t row, int channels) {
    found = Row::load(stats, row);
    for_packs<N, kPacks>(channels, [&](int v, int c) {
      gradients[v] = load_pack<T, N>(d_y + row * channels + c);
      values[v] = load_pack<T, N>(x + row * channels + c);
      if (residual) added[v] = load_pack<T, N>(residual + row * channels + c);
    });
  }
};

// Computes d_x, which includes the residual, and sums over rows: Σ d_y∘x̂ for the weight, and Σ d_y for the bias. A
// block processes blockDim.y rows at a time, and meanwhile loads its next rows. The rows that it processes at the same
// time are gridDim.x apart. The block writes its sums to partial [gridDim.x, kParameters, C]. A thread has few
// channels, so its sums take few registers, and many warps fit on a multiprocessor. If y is not null, the kernel also
// recomputes the norm's output and writes it to y.
template <template <typename> class Row, typename T, int N, int kPacks, int kThreads>
__global__ void __launch_bounds__(kThreads)
    norm_backward_kernel(const T* d_y, const T* x, const T* __restrict__ weight, const T* __restrict__ bias,
                         const Acc<T>* __restrict__ stats, const T* residual, T* d_x, T* __restrict__ y,
                         Acc<T>* __restrict__ partial, int64_t num_rows, int channels) {
  using A = Acc<T>;
  constexpr int kSums = Row<A>::kSums, kParameters = Row<A>::kParameters;
  extern __shared__ __align__(16) unsigned char dynamic_shared[];
  // [blockDim.y, kParameters, C]; used only with several rows per block
  A* const exchange = reinterpret_cast<A*>(dynamic_shared);
  // The sums of the warps. The turns of the loop below use two sets alternately, because a fast warp must not overwrite
  // sums that a slow warp still reads.
  __shared__ A shared[2][kSums][kThreads / kWarp];
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warps_of_row = static_cast<int>(blockDim.x) / kWarp,
            first_warp = static_cast<int>(threadIdx.y) * warps_of_row,
            warp = first_warp + static_cast<int>(threadIdx.x) / kWarp;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.y;
  Pack<T, N> weights[kPacks] = {};
  A parameter_sums[kParameters][kPacks][N] = {};
  for_packs<N, kPacks>(channels, [&](int v, int c) { weights[v] = load_pack<T, N>(weight + c); });
  BackwardRow<Row<A>, T, N, kPacks> next;
  int64_t row = static_cast<int64_t>(threadIdx.y) * gridDim.x + blockIdx.x;
  if (row < num_rows) next.load(d_y, x, stats, residual, row, channels);
  // In the last turn, a block may have fewer rows than blockDim.y. The threads without a row still take part, because
  // all threads of the block must reach the barriers.
  for (int turn = 0; row - static_cast<int64_t>(threadIdx.y) * gridDim.x < num_rows; row += stride, turn ^= 1) {
    BackwardRow<Row<A>, T, N, kPacks> now = next;
    if (row + stride < num_rows) {
      next.load(d_y, x, stats, residual, row + stride, channels);
    } else {
      next = {};  // zeros, which add nothing to the sums
    }
    A sums[kSums] = {};
    for_packs<N, kPacks>(channels, [&](int v, int) {
#pragma unroll
      for (int j = 0; j < N; ++j) {
        const A gradient = now.gradients[v][j];
        now.found.add(gradient, now.values[v][j], weights[v][j], sums, parameter_sums[0][v][j]);
        if constexpr (kParameters > 1) parameter_sums[1][v][j] += gradient;
      }
    });
#pragma unroll
    for (int s = 0; s < kSums; ++s) sums[s] = warp_reduce(sums[s], Sum());
    if (warps_of_row > 1) {
      if (lane == 0) {
#pragma unroll
        for (int s = 0; s < kSums; ++s) shared[turn][s][warp] = sums[s];
      }
      __syncthreads();
#pragma unroll
      for (int s = 0; s < kSums; ++s) sums[s] = 0;
      for (int w = first_warp; w < first_warp + warps_of_row; ++w) {
#pragma unroll
        for (int s = 0; s < kSums; ++s) sums[s] += shared[turn][s][w];
      }
    }
    if (row >= num_rows) continue;
#pragma unroll
    for (int s = 0; s < kSums; ++s) sums[s] = sums[s] / static_cast<A>(channels);
    for_packs<N, kPacks>(channels, [&](int v, int c) {
      A results[N];
#pragma unroll
      for (int j = 0; j < N; ++j)
        results[j] = now.added[v][j] + now.found.d_x(now.gradients[v][j], now.values[v][j], weights[v][j], sums);
      store_pack(d_x + row * channels + c, Pack<T, N>::of(results));
      if (!y) return;
      Pack<T, N> biases = {};
      if constexpr (kParameters > 1) biases = load_pack<T, N>(bias + c);
#pragma unroll
      for (int j = 0; j < N; ++j) results[j] = now.found.y(now.values[v][j], weights[v][j], biases[j]);
      store_pack(y + row * channels + c, Pack<T, N>::of(results));
    });
  }
  const int rows = static_cast<int>(blockDim.y), width = kParameters * channels;
  A* const block_sums = partial + static_cast<int64_t>(blockIdx.x) * width;
  A* const mine = rows > 1 ? exchange + static_cast<int>(threadIdx.y) * width : block_sums;
  for_packs<N, kPacks>(channels, [&](int v, int c) {
#pragma unroll
    for (int p = 0; p < kParameters; ++p) store_pack(mine + p * channels + c, Pack<A, N>::of(parameter_sums[p][v]));
  });
  if (rows == 1) return;
  __syncthreads();
  constexpr int kTogether = N < kPackOf<A> ? N : kPackOf<A>;
  const int thread = static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x);
  for (int c = thread * kTogether; c < width; c += static_cast<int>(blockDim.x) * rows * kTogether) {
    A together[kTogether] = {};
    for (int r = 0; r < rows; ++r) {
      const auto pack = load_pack<A, kTogether>(exchange + r * width + c);
#pragma unroll
      for (int j = 0; j < kTogether; ++j) together[j] += pack[j];
    }
    store_pack(block_sums + c, Pack<A, kTogether>::of(together));
  }
}

template <template <typename> class Row>
void norm_forward(const Context& context, const Kernels::NormForward& call) {
  const int64_t num_rows = call.x.shape[0], channels = call.x.shape[1];
  TESSERA_ASSERT(!call.y8.squares && (call.y8 || call.y.shape == call.x.shape) && call.weight.num_elems() == channels);
  TESSERA_ASSERT(Row<float>::kParameters == 1 || call.bias.num_elems() == channels);
  TESSERA_ASSERT(!call.stats || call.stats.shape == (Shape{num_rows, Row<float>::kStats}));
  if (num_rows == 0) return;
  with_float_type(call.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    with_pack<T>(channels, {call.x, call.weight, call.bias, call.y}, [&](auto n) {
      TESSERA_ASSERT(!call.y8 || (std::is_same_v<T, Bf16> && n == kFloat8Pack));
      const NormRows rows = forward_rows(channels, n);
      auto* const kernel = rows.warps * rows.rows * kWarp <= kSmallBlock
                               ? norm_forward_kernel<Row, T, n, kSmallBlock>
                               : norm_forward_kernel<Row, T, n, kMaxWarps * kWarp>;
      kernel<<<blocks_for(num_rows, rows.rows), rows.block(), 0, context.stream>>>(
          data_of<T>(call.x), data_of<T>(call.weight), data_of<T>(call.bias), static_cast<Acc<T>>(call.epsilon),
          data_of<T>(call.y), target_of(call.y8, num_rows, channels), data_of<Acc<T>>(call.stats), num_rows,
          static_cast<int>(channels));
    });
  });
  check_launch("norm_forward_kernel");
}

template <template <typename> class Row>
void norm_backward(const Context& context, const Kernels::NormBackward& call) {
  constexpr int kParameters = Row<float>::kParameters;
  const int64_t num_rows = call.x.shape[0], channels = call.x.shape[1], width = kParameters * channels;
  TESSERA_ASSERT(call.d_y.shape == call.x.shape && call.d_x.shape == call.x.shape &&
                 call.weight.num_elems() == channels);
  TESSERA_ASSERT(call.stats.shape == (Shape{num_rows, Row<float>::kStats}) &&
                 (!call.residual || call.residual.shape == call.x.shape));
  TESSERA_ASSERT((!call.d_weight || call.d_weight.num_elems() == channels) &&
                 (!call.y || call.y.shape == call.x.shape));
  if (num_rows == 0) return;
  with_float_type(call.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    using A = Acc<T>;
    int64_t blocks = 0;
    with_pack<T>(channels, {call.d_y, call.x, call.weight, call.bias, call.residual, call.d_x, call.y}, [&](auto n) {
      const auto launch = [&](auto packs, auto threads) {
        // With several packs per thread, a block has only one row: shared memory has no room for the sums of several
        // such wide rows.
        const NormRows rows = backward_rows(channels, n * packs, packs == 1 ? threads / kWarp : 1);
        blocks = std::min<int64_t>({num_rows, context.num_multiprocessors, Context::scratch_elems<A>() / width});
        const size_t shared = rows.rows > 1 ? static_cast<size_t>(rows.rows * width) * sizeof(A) : 0;
        auto* const kernel = norm_backward_kernel<Row, T, n, packs, threads>;
        allow_shared(kernel, packs == 1 ? threads * n * kParameters * sizeof(A) : 0);  // enough for rows of every width
        kernel<<<static_cast<unsigned>(blocks), rows.block(), shared, context.stream>>>(
            data_of<T>(call.d_y), data_of<T>(call.x), data_of<T>(call.weight), data_of<T>(call.bias),
            data_of<A>(call.stats), data_of<T>(call.residual), data_of<T>(call.d_x), data_of<T>(call.y),
            context.scratch_of<A>(), num_rows, static_cast<int>(channels));
      };
      using std::integral_constant;
      if (warps_for(channels, n) <= kBackwardThreads / kWarp) {
        launch(integral_constant<int, 1>(), integral_constant<int, kBackwardThreads>());
      } else {  // supports up to n · kWide · 1024 channels
        constexpr int kWide = (sizeof(T) == 2 && n > 1) ? 2 : 4;
        launch(integral_constant<int, kWide>(), integral_constant<int, 1024>());
      }
    });
    check_launch("norm_backward_kernel");
    if (!call.d_weight) return;
    const ColumnSums sums{{context.scratch, dtype_in_views<A>(), {blocks, width}}, call.d_weight, call.d_bias};
    add_column_sums(context, {&sums, 1});
  });
}

}  // namespace

void CudaKernels::layer_norm_forward(const NormForward& call) {
  norm_forward<LayerRow>(context_, call);
}

void CudaKernels::layer_norm_backward(const NormBackward& call) {
  const int64_t channels = call.x.shape[1];
  TESSERA_ASSERT(call.d_weight && call.d_bias.num_elems() == channels);
  TESSERA_ASSERT(!call.y || call.bias.num_elems() == channels);
  norm_backward<LayerRow>(context_, call);
}

void CudaKernels::rms_norm_forward(const NormForward& call) {
  TESSERA_ASSERT(!call.bias);
  norm_forward<RmsRow>(context_, call);
}

void CudaKernels::rms_norm_backward(const NormBackward& call) {
  TESSERA_ASSERT(!call.bias && !call.d_bias);
  norm_backward<RmsRow>(context_, call);
}

}  // namespace tessera::cuda
