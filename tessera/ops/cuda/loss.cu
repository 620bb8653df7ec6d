// Softmax cross-entropy and argmax over rows of logits.
#include <cooperative_groups.h>

#include <algorithm>
#include <limits>

#include "tessera/ops/cuda/cuda_kernels.h"
#include "tessera/ops/cuda/reduce.cuh"
#include "tessera/ops/cuda/tiles.cuh"
#include "tessera/ops/cuda/types.cuh"

namespace tessera::cuda {
namespace {

constexpr int kThreads = 1024, kWarps = kThreads / kWarp;

template <typename A>
__device__ inline A lowest() {
  return -std::numeric_limits<A>::infinity();
}

// power<T>(x·kBase<T>) computes exp(x). For 16-bit logits, the hardware's fast 2ˣ is accurate enough: power<T>(x) is
// 2ˣ, and kBase<T> is log₂ e. For other types, power<T>(x) is exp(x), and kBase<T> is 1.
template <typename T>
inline constexpr bool kFast = sizeof(T) == 2;
template <typename T>
inline constexpr Acc<T> kBase = kFast<T> ? Acc<T>(1.4426950408889634) : Acc<T>(1);

template <typename T>
__device__ inline Acc<T> power(Acc<T> x) {
  if constexpr (kFast<T>) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
  } else {
    return exp(x);
  }
}

// Calls body(i, pack) for this thread's packs of N elements in a row of `count` elements. `pack` begins at element i of
// the row. N divides `count`.
template <typename T, int N, typename Body>
__device__ inline void for_row(const T* row, int64_t count, const Body& body) {
  for (int64_t i = static_cast<int64_t>(threadIdx.x) * N; i < count; i += kThreads * N) {
    const auto pack = load_pack<T, N>(row + i);
    body(i, pack);
  }
}

// The maximum of some logits, and Σ exp(x − maximum) over these logits. For no logits: −∞ and 0.
template <typename A>
struct LogSum {
  A maximum, sum;
};

// Adds the logits of a pack to those that `mine` covers.
template <typename T, int N>
__device__ inline void add_pack(const Pack<T, N>& pack, LogSum<Acc<T>>& mine) {
  Acc<T> x[N], most = lowest<Acc<T>>();
#pragma unroll
  for (int j = 0; j < N; ++j) {
    x[j] = pack[j];
    most = max(most, x[j]);
  }
  if (mine.maximum < most) {
    mine.sum *= power<T>((mine.maximum - most) * kBase<T>);
    mine.maximum = most;
  }
  // If all logits so far are −∞, shift is 0, because −∞ − (−∞) would be NaN. Each −∞ then adds 0 to the sum. A NaN
  // logit still makes the sum NaN.
  const Acc<T> shift = mine.maximum == lowest<Acc<T>>() ? Acc<T>(0) : -mine.maximum * kBase<T>;
#pragma unroll
  for (int j = 0; j < N; ++j) mine.sum += power<T>(fma(x[j], kBase<T>, shift));
}

// Returns (softmax − one-hot)·scale for a pack of logits. `first` is the token id of the first logit. log_sum_exp and
// target belong to the row.
template <typename T, int N>
__device__ inline Pack<T, N> gradient_of(const Pack<T, N>& pack, Acc<T> log_sum_exp, int64_t first, int target,
                                         Acc<T> scale) {
  const Acc<T> shift = -log_sum_exp * kBase<T>;
  Acc<T> p[N];
#pragma unroll
  for (int j = 0; j < N; ++j) p[j] = power<T>(fma(pack[j], kBase<T>, shift)) * scale;
  if (target >= first && target < first + N) {
#pragma unroll
    for (int j = 0; j < N; ++j) p[j] -= first + j == target ? scale : Acc<T>(0);
  }
  return Pack<T, N>::of(p);
}

template <typename A>
__device__ inline double loss_of(const LogSum<A>& all, A at_target) {
  return static_cast<double>(all.maximum) + ::log(static_cast<double>(all.sum)) - static_cast<double>(at_target);
}

// The factor that rescales a sum from the maximum `from` to the maximum `to`: exp(from − to). If `from` is −∞ (no
// logits, or all are −∞), the result is 0.
template <typename A>
__device__ inline A correction(A from, A to) {
  return from == lowest<A>() ? A(0) : exp(from - to);
}

// Combines the parts of all lanes of a warp. Every lane gets the same bits.
template <typename A>
__device__ LogSum<A> warp_log_sum(const LogSum<A>& part) {
  const A maximum = warp_reduce(part.maximum, Max());
  return {maximum, warp_reduce(part.sum * correction(part.maximum, maximum), Sum())};
}

// Combines the parts of all threads of a block, which has kWarps warps. Every thread gets the result.
template <int kWarps, typename A>
__device__ LogSum<A> block_log_sum(const LogSum<A>& mine, LogSum<A>* shared) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const LogSum<A> of_warp = warp_log_sum(mine);
  if (lane == 0) shared[threadIdx.x / kWarp] = of_warp;
  __syncthreads();
  return warp_log_sum(lane < kWarps ? shared[lane] : LogSum<A>{lowest<A>(), 0});
}

// One block per row. It reads the row once for the loss. For the gradient, it reads the row a second time and
// overwrites it with the gradient.
template <typename T, int N>
__global__ void __launch_bounds__(kThreads)
    cross_entropy_kernel(T* logits, const int32_t* __restrict__ targets, int64_t vocabulary, Acc<T> d_scale,
                         double* __restrict__ row_losses) {
  using A = Acc<T>;
  __shared__ LogSum<A> shared[kWarps];
  T* const row = logits + static_cast<int64_t>(blockIdx.x) * vocabulary;
  const int target = targets[blockIdx.x];
  if (target < 0 || target >= vocabulary) __trap();
  const A at_target = to_acc(row[target]);
  LogSum<A> mine{lowest<A>(), 0};
  for_row<T, N>(row, vocabulary, [&](int64_t, const Pack<T, N>& pack) { add_pack(pack, mine); });
  // All threads must have read the target's logit before it is overwritten. block_log_sum() contains a barrier that
  // ensures this.
  const LogSum<A> all = block_log_sum<kWarps>(mine, shared);
  const A log_sum_exp = all.maximum + log(all.sum);
  if (threadIdx.x == 0) row_losses[blockIdx.x] = loss_of(all, at_target);
  if (d_scale == 0) return;
  for_row<T, N>(row, vocabulary, [&](int64_t i, const Pack<T, N>& pack) {
    store_pack(row + i, gradient_of(pack, log_sum_exp, i, target, d_scale));
  });
}

// One cluster of blocks per row (sm_90 and later). The row is divided into one slice per block, and each block keeps
// its slice in shared memory. Therefore the row is read only once, even if it is larger than the shared memory of one
// block. If a gradient is computed, the row is also written once.
constexpr int kCluster = 8, kSliceThreads = 512;
constexpr int64_t kMinSlicedVocabulary = 32768, kMaxSliceBytes = 128 << 10, kOtherSharedBytes = 1 << 10;

// The number of elements in a slice, a multiple of kPackOf<T>. The last slice of a row may be shorter.
template <typename T>
int64_t slice_elems(int64_t vocabulary) {
  constexpr int64_t kUnit = int64_t{kPackOf<T>} * kCluster;
  return (vocabulary + kUnit - 1) / kUnit * kPackOf<T>;
}

template <typename T>
__global__ void __launch_bounds__(kSliceThreads)
    sliced_cross_entropy_kernel(T* logits, const int32_t* __restrict__ targets, int64_t vocabulary, int64_t slice_elems,
                                Acc<T> d_scale, double* __restrict__ row_losses) {
#if __CUDA_ARCH__ >= 900
  using A = Acc<T>;
  constexpr int N = kPackOf<T>, kSliceWarps = kSliceThreads / kWarp;
  extern __shared__ __align__(16) unsigned char dynamic_shared[];
  T* const slice = reinterpret_cast<T*>(dynamic_shared);
  __shared__ LogSum<A> shared[kSliceWarps], of_slice;
  const auto cluster = cooperative_groups::this_cluster();
  const int64_t row_index = blockIdx.x / kCluster, rank = blockIdx.x % kCluster;
  const int64_t first = rank * slice_elems;
  const int count = static_cast<int>(min(slice_elems, vocabulary - first));  // the last slice may be shorter
  T* const row = logits + row_index * vocabulary;
  const int target = targets[row_index];
  if (target < 0 || target >= vocabulary) __trap();
  const A at_target = to_acc(row[target]);
  for (int i = static_cast<int>(threadIdx.x) * N; i < count; i += kSliceThreads * N) {
    copy_async(slice + i, row + first + i, true);
  }
  commit_copies();
  wait_for_copies<0>();  // no barrier follows, because a thread reads only what it has copied itself
  LogSum<A> mine{lowest<A>(), 0};
  for (int i = static_cast<int>(threadIdx.x) * N; i < count; i += kSliceThreads * N) {
    add_pack(load_pack<T, N>(slice + i), mine);
  }
  mine = block_log_sum<kSliceWarps>(mine, shared);
  if (threadIdx.x == 0) of_slice = mine;
  cluster.sync();  // waits until all blocks of the cluster have read the target's logit and stored of_slice
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const LogSum<A> all =
      warp_log_sum(lane < kCluster ? *cluster.map_shared_rank(&of_slice, lane) : LogSum<A>{lowest<A>(), 0});
  cluster.barrier_arrive();  // before the stores to the row, because an arrival waits for earlier stores
  const A log_sum_exp = all.maximum + log(all.sum);
  if (rank == 0 && threadIdx.x == 0) row_losses[row_index] = loss_of(all, at_target);
  if (d_scale != 0) {
    for (int i = static_cast<int>(threadIdx.x) * N; i < count; i += kSliceThreads * N) {
      store_pack(row + first + i, gradient_of(load_pack<T, N>(slice + i), log_sum_exp, first + i, target, d_scale));
    }
  }
  cluster.barrier_wait();  // of_slice must exist until all blocks of the cluster have read it
#else
  __trap();  // GPUs before sm_90: can_slice() returns false
#endif
}

template <typename T>
bool can_slice(const Context& context, View logits) {
  const int64_t most = std::min(kMaxSliceBytes, context.max_shared_bytes - kOtherSharedBytes);
  return context.code_major >= 9 && logits.shape[1] % kPackOf<T> == 0 && aligned_for<T>(logits.data, kPackOf<T>) &&
         logits.shape[1] >= kMinSlicedVocabulary &&
         slice_elems<T>(logits.shape[1]) * static_cast<int64_t>(sizeof(T)) <= most;
}

template <typename T>
void launch_sliced(const Context& context, T* logits, const int32_t* targets, int64_t num_rows, int64_t vocabulary,
                   double d_scale, double* row_losses) {
  const int64_t elems = slice_elems<T>(vocabulary);
  const size_t bytes = static_cast<size_t>(elems) * sizeof(T);
  allow_shared(sliced_cross_entropy_kernel<T>, bytes);
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {kCluster, 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(num_rows * kCluster));
  config.blockDim = dim3(kSliceThreads);
  config.dynamicSmemBytes = bytes;
  config.stream = context.stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  check(cudaLaunchKernelEx(&config, sliced_cross_entropy_kernel<T>, logits, targets, vocabulary, elems,
                           static_cast<Acc<T>>(d_scale), row_losses),
        "sliced_cross_entropy_kernel");
}

// loss += Σ row_losses, in a fixed order.
__global__ void add_losses_kernel(const double* __restrict__ row_losses, int count, double* __restrict__ loss) {
  __shared__ double shared[kWarps];
  double sum = 0;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) sum += row_losses[i];
  sum = block_reduce(sum, Sum(), shared, kWarps);
  if (threadIdx.x == 0) *loss += sum;
}

// The greatest value and its index. If several elements have this value, the lowest of their indices. A NaN is never
// the greatest value.
template <typename A>
struct Best {
  A value;
  int at;
  __device__ void add(const Best& other) {
    if (value < other.value || (value == other.value && other.at < at)) *this = other;
  }
};

template <typename T, int N>
__global__ void __launch_bounds__(kThreads)
    argmax_kernel(const T* __restrict__ logits, int64_t vocabulary, int32_t* __restrict__ ids) {
  using A = Acc<T>;
  __shared__ Best<A> shared[kWarps];
  Best<A> best{lowest<A>(), std::numeric_limits<int>::max()};
  for_row<T, N>(logits + static_cast<int64_t>(blockIdx.x) * vocabulary, vocabulary,
                [&](int64_t i, const Pack<T, N>& pack) {
#pragma unroll
                  for (int j = 0; j < N; ++j) best.add({pack[j], static_cast<int>(i) + j});
                });
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    best.add({__shfl_xor_sync(kAllLanes, best.value, offset), __shfl_xor_sync(kAllLanes, best.at, offset)});
  }
  if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = best;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int w = 1; w < kWarps; ++w) best.add(shared[w]);
  ids[blockIdx.x] = best.at < vocabulary ? best.at : 0;  // 0 if all logits are NaN
}

}  // namespace

void CudaKernels::softmax_cross_entropy(View logits, View targets, double d_scale, View loss) {
  const int64_t num_rows = targets.num_elems(), vocabulary = logits.shape[1];
  TESSERA_ASSERT(logits.shape[0] == num_rows || num_rows == 0);
  double* const row_losses = context_.scratch_of<double>();
  with_float_type(logits.dtype, [&](auto zero) {
    using T = decltype(zero);
    with_pack<T>(logits.shape[1], {logits}, [&](auto n) {
      for (int64_t first = 0; first < num_rows; first += Context::scratch_elems<double>()) {
        const int64_t count = std::min(Context::scratch_elems<double>(), num_rows - first);
        T* const rows = data_of<T>(logits) + first * vocabulary;
        const int32_t* const of_rows = targets.as<int32_t>() + first;
        if (can_slice<T>(context_, logits)) {
          launch_sliced(context_, rows, of_rows, count, vocabulary, d_scale, row_losses);
        } else {
          cross_entropy_kernel<T, n><<<static_cast<unsigned>(count), kThreads, 0, context_.stream>>>(
              rows, of_rows, vocabulary, static_cast<Acc<T>>(d_scale), row_losses);
          check_launch("cross_entropy_kernel");
        }
        add_losses_kernel<<<1, kThreads, 0, context_.stream>>>(row_losses, static_cast<int>(count),
                                                               data_of<double>(loss));
        check_launch("add_losses_kernel");
      }
    });
  });
}

void CudaKernels::argmax_rows(View logits, View ids) {
  const int64_t num_rows = ids.num_elems();
  TESSERA_ASSERT(logits.shape[0] == num_rows);
  if (num_rows == 0) return;
  with_float_type(logits.dtype, [&](auto zero) {
    using T = decltype(zero);
    with_pack<T>(logits.shape[1], {logits}, [&](auto n) {
      argmax_kernel<T, n><<<static_cast<unsigned>(num_rows), kThreads, 0, context_.stream>>>(
          data_of<T>(logits), logits.shape[1], ids.as<int32_t>());
    });
  });
  check_launch("argmax_kernel");
}

}  // namespace tessera::cuda
