// Random 32-bit words and dropout masks in vector code.
#pragma once

#include <algorithm>
#include <cstdint>

#include "tessera/ops/dropout_mask.h"
#include "tessera/ops/kernels.h"

namespace tessera::cpu {

// Computes philox() (base/random.h) for 16 counters together. Counter j has the lower half low + j·low_step and the
// upper half high + j·high_step. words[16·w + j] receives word w of the four words for counter j.
inline void philox16(uint64_t key, uint64_t low, uint64_t low_step, uint64_t high, uint64_t high_step,
                     uint32_t (&words)[64]) {
  uint32_t c0[16], c1[16], c2[16], c3[16];
#pragma omp simd
  for (uint32_t j = 0; j < 16; ++j) {
    const uint64_t lane_low = low + j * low_step, lane_high = high + j * high_step;
    c0[j] = static_cast<uint32_t>(lane_low), c1[j] = static_cast<uint32_t>(lane_low >> 32);
    c2[j] = static_cast<uint32_t>(lane_high), c3[j] = static_cast<uint32_t>(lane_high >> 32);
  }
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
#pragma GCC unroll 10
  for (int round = 0; round < 10; ++round) {
#pragma omp simd
    for (int j = 0; j < 16; ++j) {
      const uint64_t p0 = 0xD2511F53ull * c0[j], p1 = 0xCD9E8D57ull * c2[j];
      c0[j] = static_cast<uint32_t>(p1 >> 32) ^ c1[j] ^ k0;
      c1[j] = static_cast<uint32_t>(p1);
      c2[j] = static_cast<uint32_t>(p0 >> 32) ^ c3[j] ^ k1;
      c3[j] = static_cast<uint32_t>(p0);
    }
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  std::copy_n(c0, 16, words);
  std::copy_n(c1, 16, words + 16);
  std::copy_n(c2, 16, words + 32);
  std::copy_n(c3, 16, words + 48);
}

// For each j < count, values[j] becomes values[j] / (1 − rate) if the mask keeps element (row_id, column + j), and
// otherwise 0.
template <typename T>
void apply_dropout(const Dropout& dropout, int64_t row_id, uint32_t column, int64_t count, T* values) {
  const uint32_t threshold = dropout_threshold(dropout.rate);
  const T scale = T(1) / (T(1) - T(dropout.rate));
  for (int64_t done = 0; done < count;) {
    const uint32_t first = column + static_cast<uint32_t>(done), skipped = first % 64;
    uint32_t words[64];
    philox16(dropout.seed, static_cast<uint64_t>(row_id), 0,
             dropout_counter_high(dropout.site, dropout_counter(first - skipped)), 1, words);
    const int64_t part = std::min<int64_t>(64 - skipped, count - done);
    T* part_values = values + done;
    const uint32_t* part_words = words + skipped;
#pragma omp simd
    for (int64_t j = 0; j < part; ++j) part_values[j] = part_words[j] >= threshold ? part_values[j] * scale : T(0);
    done += part;
  }
}

}  // namespace tessera::cpu
