// Draws tokens from rows of logits. One thread block handles one row and reads the logits of this row several times.
// All reads after the first find the logits in the L2 cache. ops/sampling_numbers.h defines the distance, the weight
// and the mass. A mass is a sum of integers, so atomic additions in any order give the same result.
#include <limits>

#include "tessera/ops/cuda/cuda_kernels.h"
#include "tessera/ops/cuda/reduce.cuh"
#include "tessera/ops/cuda/types.cuh"
#include "tessera/ops/sampling_numbers.h"

namespace tessera::cuda {
namespace {

using Mass = unsigned long long;  // atomicAdd has a version for this type, but not for uint64_t

constexpr int kThreads = 1024, kWarps = kThreads / kWarp;
static_assert(kWarps == kWarp);

__device__ inline Mass weight_of(uint32_t distance) {
  return sampling_weight(exp(-(distance * kDistanceUnit)));
}

// The row of a thread block. All threads of the block must call mass(), find_limit() and find_token() together.
template <typename T>
struct Row {
  const T* logits;
  int64_t count;
  double temperature;
  Acc<T> largest;
  Mass* warp_sums;  // [kWarps] shared
  Mass* buckets;    // [kMaxSamplingBuckets] shared
  Mass* chosen;     // [2] shared

  __device__ uint32_t distance_of(int64_t i) const {
    return sampling_distance(static_cast<double>(to_acc(logits[i])), static_cast<double>(largest), temperature);
  }

  // The mass of the tokens that have a distance of at most `limit`, among the tokens begin + first, begin + first +
  // step, … before `end`.
  __device__ Mass part(int64_t begin, int64_t end, uint32_t limit, int first, int step) const {
    Mass sum = 0;
    for (int64_t i = begin + first; i < end; i += step) {
      if (const uint32_t distance = distance_of(i); distance <= limit) sum += weight_of(distance);
    }
    return sum;
  }

  // The mass of all tokens that have a distance of at most `limit`.
  __device__ Mass mass(uint32_t limit) const {
    const Mass sum =
        block_reduce(part(0, count, limit, static_cast<int>(threadIdx.x), kThreads), Sum(), warp_sums, kWarps);
    __syncthreads();  // before the sums are overwritten
    return sum;
  }

  // Returns the smallest distance d for which the tokens with distances from 0 to d have a mass of at least `wanted`.
  // Tokens whose distance is greater than `limit` do not count. If the mass of all tokens that count is less than
  // `wanted`, the result is at least `limit`. With `by_weight`, a token adds its weight to the mass. Otherwise it adds
  // 1.
  template <bool by_weight>
  __device__ uint32_t find_limit(Mass wanted, uint32_t limit) const {
    uint32_t found = 0;  // the digits of the result that are known so far
    for (int d = 0; d < kSamplingDigits; ++d) {
      const SamplingDigit digit = sampling_digit(d);
      const int num_buckets = 1 << digit.bits;
      for (int b = static_cast<int>(threadIdx.x); b < num_buckets; b += kThreads) buckets[b] = 0;
      __syncthreads();
      for (int64_t i = static_cast<int64_t>(threadIdx.x); i < count; i += kThreads) {
        const uint32_t distance = distance_of(i);
        if (distance > limit || distance >> (digit.shift + digit.bits) != found) continue;
        atomicAdd(buckets + (distance >> digit.shift & static_cast<uint32_t>(num_buckets - 1)),
                  by_weight ? weight_of(distance) : Mass{1});
      }
      __syncthreads();
      const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp,
                per_warp = num_buckets / kWarps;
      Mass sum = 0;
      for (int b = lane; b < per_warp; b += kWarp) sum += buckets[warp * per_warp + b];
      sum = warp_reduce(sum, Sum());
      if (lane == 0) warp_sums[warp] = sum;
      __syncthreads();
      if (threadIdx.x == 0) {
        int w = 0;
        for (; w + 1 < kWarps && warp_sums[w] < wanted; ++w) wanted -= warp_sums[w];
        int b = w * per_warp;
        for (; b + 1 < num_buckets && buckets[b] < wanted; ++b) wanted -= buckets[b];
        chosen[0] = static_cast<Mass>(b);
        chosen[1] = wanted;
      }
      __syncthreads();
      found = found << digit.bits | static_cast<uint32_t>(chosen[0]);
      wanted = chosen[1];
    }
    return found;
  }

  // Returns the first token at which the running sum of weights exceeds `point`. Tokens whose distance is greater than
  // `limit` add 0 to this sum. Divides the row among the warps and selects the part that contains the token. Then
  // divides this part in the same way, until one token is left.
  __device__ int64_t find_token(Mass point, uint32_t limit) const {
    const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
    int64_t begin = 0, end = count;
    while (end - begin > 1) {
      const int64_t per_warp = (end - begin + kWarps - 1) / kWarps, own = begin + warp * per_warp;
      const Mass sum = warp_reduce(part(own, min(own + per_warp, end), limit, lane, kWarp), Sum());
      if (lane == 0) warp_sums[warp] = sum;
      __syncthreads();
      if (threadIdx.x == 0) {
        int w = 0;
        for (; w + 1 < kWarps && point >= warp_sums[w]; ++w) point -= warp_sums[w];
        chosen[0] = static_cast<Mass>(w);
        chosen[1] = point;
      }
      __syncthreads();
      begin += static_cast<int64_t>(chosen[0]) * per_warp;
      end = min(begin + per_warp, end);
      point = chosen[1];
      __syncthreads();  // before warp_sums and chosen are overwritten
    }
    return begin;
  }
};

template <typename T>
__global__ void __launch_bounds__(kThreads)
    sample_kernel(const T* __restrict__ logits, int64_t vocabulary, const int64_t* __restrict__ draws,
                  Sampling sampling, int32_t* __restrict__ ids) {
  using A = Acc<T>;
  __shared__ A maxima[kWarps];
  __shared__ Mass warp_sums[kWarps], buckets[kMaxSamplingBuckets], chosen[2];
  const T* const own = logits + static_cast<int64_t>(blockIdx.x) * vocabulary;
  A largest = -std::numeric_limits<A>::infinity();
  for (int64_t i = static_cast<int64_t>(threadIdx.x); i < vocabulary; i += kThreads) {
    const A x = to_acc(own[i]);
    largest = largest < x ? x : largest;  // skips NaN
  }
  largest = block_reduce(largest, Max(), maxima, kWarps);
  if (!(largest > -std::numeric_limits<A>::infinity())) {
    if (threadIdx.x == 0) ids[blockIdx.x] = 0;
    return;
  }
  const Row<T> row{own, vocabulary, sampling.temperature, largest, warp_sums, buckets, chosen};
  uint32_t limit = kLargestDistance;
  if (sampling.top_k > 0 && sampling.top_k < vocabulary) {
    limit = row.template find_limit<false>(static_cast<Mass>(sampling.top_k), limit);
  }
  Mass mass = row.mass(limit);
  if (sampling.top_p < 1) {
    limit = row.template find_limit<true>(sampling_mass_of(sampling.top_p, mass), limit);
    mass = row.mass(limit);
  }
  const int64_t id = row.find_token(sampling_point(static_cast<uint64_t>(draws[blockIdx.x]), mass), limit);
  if (threadIdx.x == 0) ids[blockIdx.x] = static_cast<int32_t>(id);
}

}  // namespace

void CudaKernels::sample_rows(View logits, View draws, const Sampling& sampling, View ids) {
  const int64_t num_rows = ids.num_elems(), vocabulary = logits.shape[1];
  TESSERA_ASSERT(logits.shape[0] == num_rows && draws.num_elems() == num_rows);
  TESSERA_ASSERT(vocabulary <= kMaxSampledVocabulary && sampling.temperature > 0);
  if (num_rows == 0) return;
  with_float_type(logits.dtype, [&](auto zero) {
    using T = decltype(zero);
    sample_kernel<T><<<static_cast<unsigned>(num_rows), kThreads, 0, context_.stream>>>(
        data_of<T>(logits), vocabulary, draws.as<int64_t>(), sampling, ids.as<int32_t>());
  });
  check_launch("sample_kernel");
}

}  // namespace tessera::cuda
