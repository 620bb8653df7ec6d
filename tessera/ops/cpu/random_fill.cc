// Fills arrays with random numbers. Element i of an array comes from Philox counter i / 4 (base/random.h), so its value
// does not depend on the thread or the shard that fills it.
#include <numbers>

#include "tessera/ops/cpu/cpu_kernels.h"
#include "tessera/ops/cpu/dispatch.h"
#include "tessera/ops/cpu/mask.h"
#include "tessera/ops/cpu/vector_math.h"

namespace tessera::cpu {

namespace {

constexpr int64_t kBlockElems = 64;  // 16 counters give 4 elements each

// 64 draws in [0, 1) from words in the order of philox16.
struct Uniform {
  void operator()(const uint32_t (&words)[kBlockElems], float (&draws)[kBlockElems]) const {
#pragma omp simd
    for (int j = 0; j < 16; ++j) {
      for (int w = 0; w < 4; ++w) draws[4 * j + w] = uniform_float(words[16 * w + j]);
    }
  }
};

// 64 draws from N(0, 1). Words 0 and 1 of a counter give its elements 0 and 1, and words 2 and 3 give elements 2 and 3:
// √(−2 ln u)·(cos 2πv, sin 2πv), with u from the first word and v from the second word (Box & Muller 1958). u has 24
// random bits and is at least 2^-25. This limits the draws to ±5.9.
struct Normal {
  void operator()(const uint32_t (&words)[kBlockElems], float (&draws)[kBlockElems]) const {
#pragma omp simd
    for (int j = 0; j < 16; ++j) {
      for (int pair = 0; pair < 2; ++pair) {
        const float u = uniform_float(words[32 * pair + j]) + 0x1p-25f;
        const float turns = static_cast<float>(static_cast<int32_t>(words[32 * pair + 16 + j])) * 0x1p-32f;
        const float radius = std::sqrt(-2.0f * log_positive(u));
        const SinCos angle = sin_cos_turns(turns);
        draws[4 * j + 2 * pair] = radius * angle.cos;
        draws[4 * j + 2 * pair + 1] = radius * angle.sin;
      }
    }
  }
};

// x[i] = offset + scale · draw of element first_elem + i.
template <typename Draw>
void fill_random(Team& team, View x, double offset, double scale, uint64_t seed, uint64_t stream, int64_t first_elem) {
  // 16-bit elements are computed in f32 and then rounded.
  with_float_type(size_of(x.dtype) == 2 ? DType::f32 : x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto elem_bytes = static_cast<int64_t>(size_of(x.dtype));
    team.for_ranges(x.num_elems(), 64 * kBlockElems, [&](int64_t, int64_t begin, int64_t end) {
      for (int64_t elem = first_elem + begin, stop = first_elem + end; elem < stop;) {
        const int64_t block = elem / kBlockElems * kBlockElems, next = std::min(stop, block + kBlockElems);
        uint32_t words[kBlockElems];
        float draws[kBlockElems];
        philox16(seed, static_cast<uint64_t>(block) / 4, 1, stream, 0, words);
        Draw()(words, draws);
        // Computes all 64 elements of a block, even if the shard begins or ends in the block. The value of an element
        // then does not depend on the borders of shards.
        T values[kBlockElems];
        for (int64_t j = 0; j < kBlockElems; ++j) values[j] = static_cast<T>(offset) + static_cast<T>(scale) * draws[j];
        tessera::convert(values + (elem - block), dtype_of<T>(), x.data + (elem - first_elem) * elem_bytes, x.dtype,
                         static_cast<size_t>(next - elem));
        elem = next;
      }
    });
  });
}

}  // namespace

void CpuKernels::fill_normal(View x, double mean, double std, uint64_t seed, uint64_t stream, int64_t first_elem) {
  fill_random<Normal>(team_, x, mean, std, seed, stream, first_elem);
}

void CpuKernels::fill_uniform(View x, double low, double high, uint64_t seed, uint64_t stream, int64_t first_elem) {
  fill_random<Uniform>(team_, x, low, high - low, seed, stream, first_elem);
}

}  // namespace tessera::cpu
