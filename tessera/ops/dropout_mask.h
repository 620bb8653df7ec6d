// Which elements a dropout keeps: a pure function of (seed, site, row id, column), see Dropout in ops/kernels.h. The
// mask is therefore the same if a block is recomputed, a batch is sharded, or another device computes the mask.
//
// Philox gives four 32-bit words per counter. Columns 64 n to 64 n + 63 use all words of 16 consecutive counters: the
// first 16 of these columns use word 0 of the 16 counters, the next 16 columns use word 1, and so on. Vector code
// therefore needs no shuffles.
#pragma once

#include <cstdint>

#include "tessera/base/random.h"

namespace tessera {

// The counter of a column, and the index of the column's word in that counter's output.
constexpr uint32_t dropout_counter(uint32_t column) {
  return column / 64 * 16 + column % 16;
}
constexpr uint32_t dropout_word_index(uint32_t column) {
  return column % 64 / 16;
}

// The upper half of Philox's 128-bit counter. `counter` is from dropout_counter(). The lower half is the row id.
constexpr uint64_t dropout_counter_high(uint32_t site, uint32_t counter) {
  return static_cast<uint64_t>(site) << 32 | counter;
}

// An element is kept if its word is at least this threshold. Rates are in [0, 1).
inline uint32_t dropout_threshold(float rate) {
  return static_cast<uint32_t>(static_cast<double>(rate) * 0x1p32);
}

inline bool dropout_keeps(float rate, uint64_t seed, uint32_t site, int64_t row_id, uint32_t column) {
  const auto words = philox(seed, static_cast<uint64_t>(row_id), dropout_counter_high(site, dropout_counter(column)));
  return words[dropout_word_index(column)] >= dropout_threshold(rate);
}

// In attention, dropout applies to the probabilities. attention_dropout_column() returns the column of (head, key).
// With dropout, sequences have at most kMaxDropoutKeys tokens, and layers at most kMaxDropoutHeads heads.
constexpr int64_t kMaxDropoutKeys = int64_t{1} << 20, kMaxDropoutHeads = int64_t{1} << 12;
constexpr uint32_t attention_dropout_column(int64_t head, int64_t key) {
  return static_cast<uint32_t>(head << 20 | key);
}

}  // namespace tessera
