// Softmax cross-entropy and argmax over rows of logits: a block a row. The loss reads a row twice and writes it once; the
// second reading mostly finds it in L2.
#include <algorithm>
#include <limits>

#include "tessera/ops/cuda/norm.h"
#include "tessera/ops/cuda/reduce.cuh"
#include "tessera/ops/cuda/types.cuh"

namespace tessera::cuda {
namespace {

constexpr int kThreads = 1024, kWarps = kThreads / kWarp;

template <typename A>
__device__ inline A lowest() {
  return -std::numeric_limits<A>::infinity();
}

// The hardware's exponential is exact enough beside 16-bit logits.
template <typename T>
__device__ inline Acc<T> exp_beside(Acc<T> x) {
  if constexpr (sizeof(T) == 2) return __expf(x);
  return exp(x);
}

// Calls body(i, value) for the elements of a row, in packs as far as the row's alignment allows.
template <typename T, int N, typename Body>
__device__ inline void for_row(const T* row, int64_t count, const Body& body) {
  for (int64_t i = static_cast<int64_t>(threadIdx.x) * N; i < count; i += kThreads * N) {
    const auto pack = load_pack<T, N>(row + i);
    body(i, pack);
  }
}

// Running maximum and Σ exp(x − maximum); empty: −∞ and 0.
template <typename A>
struct LogSum {
  A maximum, sum;
  __device__ void add(LogSum other) {
    const A most = maximum < other.maximum ? other.maximum : maximum;
    if (most == lowest<A>()) return;
    sum = sum * exp(maximum - most) + other.sum * exp(other.maximum - most);
    maximum = most;
  }
};

template <typename A>
__device__ LogSum<A> block_log_sum(LogSum<A> mine, LogSum<A>* shared) {
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    mine.add({__shfl_xor_sync(kAllLanes, mine.maximum, offset), __shfl_xor_sync(kAllLanes, mine.sum, offset)});
  }
  if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = mine;
  __syncthreads();
  LogSum<A> all = shared[0];
  for (int w = 1; w < kWarps; ++w) all.add(shared[w]);
  return all;
}

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
  for_row<T, N>(row, vocabulary, [&](int64_t, const Pack<T, N>& pack) {
    A most = to_acc(pack.at[0]);
#pragma unroll
    for (int j = 1; j < N; ++j) {
      const A x = to_acc(pack.at[j]);
      most = most < x ? x : most;
    }
    if (mine.maximum < most) {
      mine.sum *= exp_beside<T>(mine.maximum - most);
      mine.maximum = most;
    }
#pragma unroll
    for (int j = 0; j < N; ++j) mine.sum += exp_beside<T>(to_acc(pack.at[j]) - mine.maximum);
  });
  // Every thread must have read the target's logit before it is overwritten: block_log_sum has a barrier.
  const LogSum<A> all = block_log_sum(mine, shared);
  const A log_sum_exp = all.maximum + log(all.sum);
  if (threadIdx.x == 0) {
    row_losses[blockIdx.x] = static_cast<double>(all.maximum) + ::log(static_cast<double>(all.sum)) -
                             static_cast<double>(at_target);
  }
  if (d_scale == 0) return;
  for_row<T, N>(row, vocabulary, [&](int64_t i, Pack<T, N> pack) {
#pragma unroll
    for (int j = 0; j < N; ++j) {
      A probability = exp_beside<T>(to_acc(pack.at[j]) - log_sum_exp);
      if (i + j == target) probability -= A(1);
      pack.at[j] = from_acc<T>(probability * d_scale);
    }
    store_pack(row + i, pack);
  });
}

// loss += Σ row_losses, in a fixed order.
__global__ void add_losses_kernel(const double* __restrict__ row_losses, int count, double* __restrict__ loss) {
  __shared__ double shared[kWarps];
  double sum = 0;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) sum += row_losses[i];
  sum = block_reduce(sum, Sum(), shared, kWarps);
  if (threadIdx.x == 0) *loss += sum;
}

// The greatest value, and the first of equals. A NaN is never greatest.
template <typename A>
struct Best {
  A value;
  int at;
  __device__ void add(Best other) {
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
                  for (int j = 0; j < N; ++j) best.add({to_acc(pack.at[j]), static_cast<int>(i) + j});
                });
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    best.add({__shfl_xor_sync(kAllLanes, best.value, offset), __shfl_xor_sync(kAllLanes, best.at, offset)});
  }
  if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = best;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int w = 1; w < kWarps; ++w) best.add(shared[w]);
  ids[blockIdx.x] = best.at < vocabulary ? best.at : 0;  // all NaN
}

// Calls body(N) as a constant: whole packs where every row starts at a multiple of one.
template <typename T, typename Body>
void with_row_pack(View logits, Body&& body) {
  constexpr int N = kPackOf<T>;
  if (logits.shape[1] % N == 0 && aligned_for<T>(logits.data, N)) {
    body(std::integral_constant<int, N>());
  } else {
    body(std::integral_constant<int, 1>());
  }
}

}  // namespace

void softmax_cross_entropy(const Context& context, View logits, View targets, double d_scale, View loss) {
  const int64_t num_rows = targets.num_elems(), vocabulary = logits.shape[1];
  TESSERA_ASSERT(logits.shape[0] == num_rows || num_rows == 0);
  double* const row_losses = context.scratch_of<double>();
  with_float_type(logits.dtype, [&](auto zero) {
    using T = decltype(zero);
    with_row_pack<T>(logits, [&](auto n) {
      for (int64_t first = 0; first < num_rows; first += Context::scratch_elems<double>()) {
        const int64_t count = std::min(Context::scratch_elems<double>(), num_rows - first);
        cross_entropy_kernel<T, n><<<static_cast<unsigned>(count), kThreads, 0, context.stream>>>(
            data_of<T>(logits) + first * vocabulary, targets.as<int32_t>() + first, vocabulary,
            static_cast<Acc<T>>(d_scale), row_losses);
        check_launch("cross_entropy_kernel");
        add_losses_kernel<<<1, kThreads, 0, context.stream>>>(row_losses, static_cast<int>(count),
                                                              data_of<double>(loss));
        check_launch("add_losses_kernel");
      }
    });
  });
}

void argmax_rows(const Context& context, View logits, View ids) {
  const int64_t num_rows = ids.num_elems();
  TESSERA_ASSERT(logits.shape[0] == num_rows);
  if (num_rows == 0) return;
  with_float_type(logits.dtype, [&](auto zero) {
    using T = decltype(zero);
    with_row_pack<T>(logits, [&](auto n) {
      argmax_kernel<T, n><<<static_cast<unsigned>(num_rows), kThreads, 0, context.stream>>>(
          data_of<T>(logits), logits.shape[1], ids.as<int32_t>());
    });
  });
  check_launch("argmax_kernel");
}

}  // namespace tessera::cuda
