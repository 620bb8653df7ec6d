// Random words and dropout masks in vector code.
#pragma once

#include <algorithm>
#include <cstdint>

#include "tessera/ops/dropout_mask.h"
#include "tessera/ops/kernels.h"

namespace tessera::cpu {

// The words of 16 counters: words[16·w + j] is word w of counter (low + j·low_step, high + j·high_step).
inline void philox16(uint64_t key, uint64_t low, uint64_t low_step, uint64_t high, uint64_t high_step,
                     uint32_t (&words)[64]) {
#pragma omp simd
  for (uint32_t j = 0; j < 16; ++j) {
    const auto w = philox(key, low + j * low_step, high + j * high_step);
    words[j] = w[0];
    words[16 + j] = w[1];
    words[32 + j] = w[2];
    words[48 + j] = w[3];
  }
}

// values[j] becomes values[j] / (1 − rate) where element (row_id, column + j) is kept, else 0.
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
