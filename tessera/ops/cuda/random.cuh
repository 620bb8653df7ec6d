// Computes the random words of base/random.h and the masks of ops/dropout_mask.h on the GPU, with the same bits as on
// the CPU.
#pragma once

#include <cstdint>

#include "tessera/ops/dropout_mask.h"
#include "tessera/ops/kernels.h"

namespace tessera::cuda {

struct Words {
  uint32_t at[4];
  // Compares i with each index, because a variable cannot index registers.
  __device__ uint32_t operator[](uint32_t i) const { return i == 0 ? at[0] : i == 1 ? at[1] : i == 2 ? at[2] : at[3]; }
};

// The same as philox() in base/random.h.
__device__ inline Words philox_words(uint64_t key, uint64_t low, uint64_t high) {
  uint32_t c0 = static_cast<uint32_t>(low), c1 = static_cast<uint32_t>(low >> 32), c2 = static_cast<uint32_t>(high),
           c3 = static_cast<uint32_t>(high >> 32);
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * c0, p1 = uint64_t{0xCD9E8D57u} * c2;
    c0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
    c1 = static_cast<uint32_t>(p1);
    c2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c3 = static_cast<uint32_t>(p0);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

// A Dropout (ops/kernels.h) in the form that CUDA kernels use.
struct Mask {
  const int64_t* row_ids = nullptr;  // null: no dropout
  uint64_t seed = 0;
  uint32_t site = 0, threshold = 0;
  float rate = 0;

  __host__ static Mask of(const Dropout& dropout) {
    if (!(dropout.rate > 0)) return {};
    return {dropout.row_ids.as<int64_t>(), dropout.seed, dropout.site, dropout_threshold(dropout.rate), dropout.rate};
  }
  // The four random words of the counter that `column` uses. Words 0 to 3 are for the columns c, c + 16, c + 32 and
  // c + 48, where c = column / 64 · 64 + column % 16.
  __device__ Words words(int64_t row, uint32_t column) const {
    return philox_words(seed, static_cast<uint64_t>(row_ids[row]), dropout_counter_high(site, dropout_counter(column)));
  }
  // The factor of an element: 0, or 1 / (1 − rate) if the dropout keeps it.
  template <typename A>
  __device__ A factor(int64_t row, uint32_t column) const {
    return words(row, column)[dropout_word_index(column)] >= threshold ? scale<A>() : A(0);
  }
  template <typename A>
  __device__ A scale() const {
    return A(1) / (A(1) - A(rate));
  }
};

}  // namespace tessera::cuda
