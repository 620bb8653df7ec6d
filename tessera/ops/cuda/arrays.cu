// Operations on complete arrays: element-wise operations, sums over all elements, and random numbers. Memory bandwidth
// limits the element-wise operations.
#include <cuda_fp8.h>

#include <algorithm>

#include "tessera/ops/cuda/arrays.h"
#include "tessera/ops/cuda/cuda_kernels.h"
#include "tessera/ops/cuda/random.cuh"
#include "tessera/ops/cuda/reduce.cuh"
#include "tessera/ops/cuda/types.cuh"

namespace tessera::cuda {
namespace {

constexpr int kThreads = 256;

// Each thread has a pack: N consecutive elements. The first has index i. If the array contains the complete pack, the
// thread calls whole(i). Otherwise it calls single(j) for each element j of the pack that the array contains.
template <int N, typename Whole, typename Single>
__device__ inline void for_packs(int64_t count, const Whole& whole, const Single& single) {
  const int64_t i = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * N;
  if (i + N <= count) {
    whole(i);
  } else {
    for (int64_t j = i; j < count; ++j) single(j);
  }
}

template <typename T>
__global__ void fill_kernel(T* x, T value, int64_t count) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < count) x[i] = value;
}

// sum += x
template <typename T, typename S, int N>
__global__ void add_kernel(const T* __restrict__ x, S* __restrict__ sum, int64_t count) {
  for_packs<N>(
      count,
      [&](int64_t i) {
        const auto from = load_pack<T, N>(x + i);
        const auto to = load_pack<S, N>(sum + i);
        Acc<S> values[N];
#pragma unroll
        for (int j = 0; j < N; ++j) values[j] = to[j] + static_cast<Acc<S>>(from[j]);
        store_pack(sum + i, Pack<S, N>::of(values));
      },
      [&](int64_t i) { sum[i] = from_acc<S>(to_acc(sum[i]) + static_cast<Acc<S>>(to_acc(x[i]))); });
}

template <typename From, typename To, int N>
__global__ void convert_kernel(const From* __restrict__ from, To* __restrict__ to, int64_t count) {
  for_packs<N>(
      count,
      [&](int64_t i) {
        const auto source = load_pack<From, N>(from + i);
        Acc<To> values[N];
#pragma unroll
        for (int j = 0; j < N; ++j) values[j] = static_cast<Acc<To>>(source[j]);
        store_pack(to + i, Pack<To, N>::of(values));
      },
      [&](int64_t i) { to[i] = from_acc<To>(to_acc(from[i])); });
}

// x = the f32 values that were rounded to 16 bits. `narrow` has the rounded values, and `rest` has the parts that the
// rounding lost (base/dtype.h).
template <typename Rest>
__global__ void join_kernel(const Narrow<Rest>* __restrict__ narrow, const Rest* __restrict__ rest,
                            float* __restrict__ x, int64_t count) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < count) x[i] = joined(to_acc(narrow[i]), rest[i]);
}

// ---- sums of squares. Each thread block sums the squares in a fixed part of one array. Then one thread block per
// array adds the sums of the array's parts. At the end, one thread adds the sums of the arrays, one array after the
// other.

constexpr int kSumBlocks = 1024, kSumThreads = 512;  // thread blocks per array, at most; threads per block
constexpr int64_t kSumElems = 65536;  // elements per block; more if an array has over kSumBlocks · kSumElems elements
constexpr int kSumArrays = 64;        // arrays per launch, at most

template <typename T>
struct SummedArrays {
  const T* data[kSumArrays];
  int64_t counts[kSumArrays];
  int first_blocks[kSumArrays + 1];
};

template <typename T>
__global__ void square_sums_kernel(SummedArrays<T> arrays, double* __restrict__ partial) {
  __shared__ double shared[kSumThreads / kWarp];
  const int block = static_cast<int>(blockIdx.x);
  int array = 0;
  while (arrays.first_blocks[array + 1] <= block) ++array;
  const T* const x = arrays.data[array];
  const int64_t count = arrays.counts[array], first = arrays.first_blocks[array];
  double sum = 0;
  const auto add = [&](Acc<T> x) { sum += static_cast<double>(x) * static_cast<double>(x); };
  constexpr int N = kPackOf<T>, kTogether = 4;  // kTogether: outstanding loads of a thread
  const int64_t stride = (arrays.first_blocks[array + 1] - first) * kSumThreads * N;
  int64_t i = ((block - first) * kSumThreads + threadIdx.x) * N;
  if (reinterpret_cast<uintptr_t>(x) % 16 == 0) {
    for (; i + (kTogether - 1) * stride + N <= count; i += kTogether * stride) {
      Pack<T, N> packs[kTogether];
#pragma unroll
      for (int k = 0; k < kTogether; ++k) packs[k] = load_pack<T, N>(x + i + k * stride);
#pragma unroll
      for (int k = 0; k < kTogether; ++k) {
#pragma unroll
        for (int j = 0; j < N; ++j) add(packs[k][j]);
      }
    }
  }
  for (; i < count; i += stride) {
    for (int64_t j = i; j < count && j < i + N; ++j) add(to_acc(x[j]));
  }
  sum = block_reduce(sum, Sum(), shared, kSumThreads / kWarp);
  if (threadIdx.x == 0) partial[block] = sum;
}

template <typename T>
__global__ void add_partials_kernel(SummedArrays<T> arrays, const double* __restrict__ partial,
                                    double* __restrict__ sums) {
  __shared__ double shared[kSumThreads / kWarp];
  const int end = arrays.first_blocks[blockIdx.x + 1];
  double mine = 0;
  for (int i = arrays.first_blocks[blockIdx.x] + static_cast<int>(threadIdx.x); i < end; i += kSumThreads) {
    mine += partial[i];
  }
  mine = block_reduce(mine, Sum(), shared, kSumThreads / kWarp);
  if (threadIdx.x == 0) sums[blockIdx.x] += mine;
}

// Adds Σ (word + 1) · (an odd number computed from the word's index) to *sum, modulo 2^64, over the array's 16-bit
// words. The sum of integers is the same in every order, so the threads may add in any order.
__global__ void hash_kernel(const uint16_t* __restrict__ x, int64_t count, unsigned long long* sum) {
  unsigned long long mine = 0;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < count; i += stride) {
    mine += (x[i] + 1ull) * ((static_cast<unsigned long long>(i) * 0x9E3779B97F4A7C15ull) | 1ull);
  }
  atomicAdd(sum, mine);
}

template <typename T>
__global__ void count_finite_nonzero_kernel(const T* __restrict__ x, int64_t count, unsigned long long* sum) {
  unsigned long long mine = 0;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < count; i += stride) {
    const auto value = static_cast<Acc<T>>(x[i]);
    mine += value != 0 && isfinite(value);
  }
  atomicAdd(sum, mine);
}

// ---- random numbers: the same formulas and Philox words as in ops/cpu/random_fill.cc

struct Uniform {
  __device__ void operator()(const Words& words, float (&draws)[4]) const {
#pragma unroll
    for (int w = 0; w < 4; ++w) draws[w] = static_cast<float>(words.at[w] >> 8) * 0x1p-24f;
  }
};

struct Normal {
  __device__ void operator()(const Words& words, float (&draws)[4]) const {
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {
      const float u = static_cast<float>(words.at[2 * pair] >> 8) * 0x1p-24f + 0x1p-25f;
      const float half_turns = static_cast<float>(static_cast<int32_t>(words.at[2 * pair + 1])) * 0x1p-31f;
      const float radius = sqrtf(-2.0f * logf(u));
      draws[2 * pair] = radius * cospif(half_turns);
      draws[2 * pair + 1] = radius * sinpif(half_turns);
    }
  }
};

// Each thread computes the four elements of one Philox counter, and writes those that are in the array.
template <typename T, typename Draw>
__global__ void random_kernel(T* x, int64_t count, Acc<T> offset, Acc<T> scale, uint64_t seed, uint64_t stream,
                              int64_t first_elem) {
  const int64_t counter = first_elem / 4 + static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  float draws[4];
  Draw()(philox_words(seed, static_cast<uint64_t>(counter), stream), draws);
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const int64_t i = counter * 4 + j - first_elem;
    if (i >= 0 && i < count) x[i] = from_acc<T>(offset + scale * static_cast<Acc<T>>(draws[j]));
  }
}

template <typename Draw>
void fill_random(const Context& context, View x, double offset, double scale, uint64_t seed, uint64_t stream,
                 int64_t first_elem) {
  const int64_t count = x.num_elems();
  if (count == 0) return;
  const int64_t counters = (first_elem + count + 3) / 4 - first_elem / 4;
  with_target_type(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    random_kernel<T, Draw><<<blocks_for(counters, kThreads), kThreads, 0, context.stream>>>(
        data_of<T>(x), count, static_cast<Acc<T>>(offset), static_cast<Acc<T>>(scale), seed, stream, first_elem);
  });
  check_launch("random_kernel");
}

}  // namespace

int code_major_for_this_gpu() {
  cudaFuncAttributes attributes;
  const cudaError_t error = cudaFuncGetAttributes(&attributes, hash_kernel);
  if (error == cudaSuccess) return attributes.ptxVersion / 10;
  cudaGetLastError();
  throw RunError(
      "CUDA", std::string("this program cannot run on this GPU: ") + cudaGetErrorString(error),
      "Configure the build with -DTESSERA_CUDA_ARCHITECTURES=NN, the GPU's compute capability without the dot");
}

void CudaKernels::fill(View x, double value) {
  const int64_t count = x.num_elems();
  if (count == 0) return;
  if (value == 0) {  // in every type, all bits of zero are 0
    check(cudaMemsetAsync(x.data, 0, static_cast<size_t>(x.bytes()), context_.stream), "cudaMemsetAsync");
    return;
  }
  with_target_type(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    T element;
    tessera::convert(&value, DType::f64, &element, x.dtype, 1);
    fill_kernel<T><<<blocks_for(count, kThreads), kThreads, 0, context_.stream>>>(data_of<T>(x), element, count);
  });
  check_launch("fill_kernel");
}

void CudaKernels::convert(View from, View to) {
  TESSERA_ASSERT(from.shape == to.shape);
  const int64_t count = from.num_elems();
  if (count == 0) return;
  with_float_type(from.dtype, [&](auto zero_from) {
    with_target_type(to.dtype, [&](auto zero_to) {
      using From = decltype(zero_from);
      using To = decltype(zero_to);
      constexpr int N = kPackOf<std::conditional_t<(sizeof(From) > sizeof(To)), From, To>>;
      const From* source = data_of<From>(from);
      To* target = data_of<To>(to);
      if (aligned_for<From>(source, N) && aligned_for<To>(target, N)) {
        convert_kernel<From, To, N>
            <<<blocks_for(count, kThreads * N), kThreads, 0, context_.stream>>>(source, target, count);
      } else {
        convert_kernel<From, To, 1>
            <<<blocks_for(count, kThreads), kThreads, 0, context_.stream>>>(source, target, count);
      }
    });
  });
  check_launch("convert_kernel");
}

void CudaKernels::join(View narrow, View rest, View x) {
  TESSERA_ASSERT(narrow.shape == x.shape && rest.shape == x.shape);
  const int64_t count = x.num_elems();
  if (count == 0) return;
  with_rest_type(rest.dtype, [&](auto zero) {
    using Rest = decltype(zero);
    join_kernel<Rest><<<blocks_for(count, kThreads), kThreads, 0, context_.stream>>>(
        data_of<Narrow<Rest>>(narrow), data_of<Rest>(rest), data_of<float>(x), count);
  });
  check_launch("join_kernel");
}

void CudaKernels::fill_normal(View x, double mean, double std, uint64_t seed, uint64_t stream, int64_t first_elem) {
  fill_random<Normal>(context_, x, mean, std, seed, stream, first_elem);
}

void CudaKernels::fill_uniform(View x, double low, double high, uint64_t seed, uint64_t stream, int64_t first_elem) {
  fill_random<Uniform>(context_, x, low, high - low, seed, stream, first_elem);
}

void CudaKernels::add(View x, View sum) {
  TESSERA_ASSERT(x.shape == sum.shape);
  const int64_t count = x.num_elems();
  if (count == 0) return;
  with_float_type(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    with_gradient_type<T>(sum.dtype, [&](auto zero_sum) {
      using S = decltype(zero_sum);
      constexpr int N = kPackOf<std::conditional_t<(sizeof(T) > sizeof(S)), T, S>>;
      const T* from = data_of<T>(x);
      S* to = data_of<S>(sum);
      if (aligned_for<T>(from, N) && aligned_for<S>(to, N)) {
        add_kernel<T, S, N><<<blocks_for(count, kThreads * N), kThreads, 0, context_.stream>>>(from, to, count);
      } else {
        add_kernel<T, S, 1><<<blocks_for(count, kThreads), kThreads, 0, context_.stream>>>(from, to, count);
      }
    });
  });
  check_launch("add_kernel");
}

namespace {

// Sets *sum to zero, and calls `launch`, which launches a kernel that adds to *sum. Waits for the kernel, and returns
// *sum. Errors name the kernel `kernel`.
template <typename Launch>
unsigned long long sum_of(const Context& context, unsigned long long* sum, const char* kernel, const Launch& launch) {
  check(cudaMemsetAsync(sum, 0, sizeof(*sum), context.stream), "cudaMemsetAsync");
  launch();
  check_launch(kernel);
  unsigned long long result = 0;
  check(cudaMemcpyAsync(&result, sum, sizeof(result), cudaMemcpyDeviceToHost, context.stream), "cudaMemcpyAsync");
  check(cudaStreamSynchronize(context.stream), "cudaStreamSynchronize");
  return result;
}

}  // namespace

uint64_t hash_of(const Context& context, View x, unsigned long long* sum) {
  return sum_of(context, sum, "hash_kernel", [&] {
    hash_kernel<<<kSumBlocks, kThreads, 0, context.stream>>>(reinterpret_cast<const uint16_t*>(x.data), x.bytes() / 2,
                                                             sum);
  });
}

int64_t count_finite_nonzero(const Context& context, View x, unsigned long long* sum) {
  return static_cast<int64_t>(sum_of(context, sum, "count_finite_nonzero_kernel", [&] {
    const auto count = [&](const auto* data) {
      count_finite_nonzero_kernel<<<kSumBlocks, kThreads, 0, context.stream>>>(data, x.num_elems(), sum);
    };
    if (x.dtype == DType::e4m3) return count(reinterpret_cast<const __nv_fp8_e4m3*>(x.data));
    with_float_type(x.dtype, [&](auto zero) { count(data_of<decltype(zero)>(x)); });
  }));
}

void CudaKernels::add_sums_of_squares(std::span<const View> arrays, View sums) {
  TESSERA_ASSERT(sums.num_elems() == std::ssize(arrays));
  double* const partial = context_.scratch_of<double>();
  for (size_t begin = 0; begin < arrays.size(); begin += kSumArrays) {
    const auto part = arrays.subspan(begin, std::min<size_t>(kSumArrays, arrays.size() - begin));
    const int num_arrays = static_cast<int>(part.size());
    with_float_type(part[0].dtype, [&](auto zero) {
      using T = decltype(zero);
      SummedArrays<T> summed{};
      for (int a = 0; a < num_arrays; ++a) {
        const View x = part[static_cast<size_t>(a)];
        const int64_t count = x.num_elems(), blocks = blocks_for(count, kSumElems);
        summed.data[a] = data_of<T>(x);
        summed.counts[a] = count;
        summed.first_blocks[a + 1] = summed.first_blocks[a] + static_cast<int>(std::min<int64_t>(kSumBlocks, blocks));
      }
      if (const int blocks = summed.first_blocks[num_arrays]) {
        square_sums_kernel<T><<<static_cast<unsigned>(blocks), kSumThreads, 0, context_.stream>>>(summed, partial);
        check_launch("square_sums_kernel");
      }
      add_partials_kernel<T><<<static_cast<unsigned>(num_arrays), kSumThreads, 0, context_.stream>>>(
          summed, partial, data_of<double>(sums) + begin);
      check_launch("add_partials_kernel");
    });
  }
}

}  // namespace tessera::cuda
