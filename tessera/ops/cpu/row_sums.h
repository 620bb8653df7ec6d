// Sums over rows. The order of additions does not depend on the number of threads.
#pragma once

#include "tessera/base/math.h"
#include "tessera/ops/cpu/team.h"

namespace tessera::cpu {

// Sums gradients of parameters (`count` elements) over rows. First sums each block of kBlockRows rows, then adds these
// sums to the gradients in the order of the blocks. The result does not depend on which thread processes which block.
// add_block(first_row, end_row, sums) adds the rows of a block to `sums`, and add_to_result(begin, end, sums) adds
// elements [begin, end) of `sums` to the gradients.
template <typename T, typename AddBlock, typename AddToResult>
void sum_in_blocks(Team& team, int64_t rows, int64_t count, AddBlock&& add_block, AddToResult&& add_to_result) {
  constexpr int64_t kBlockRows = 64, kColumnMultiple = 256;
  TESSERA_ASSERT(count > 0 && count <= Team::scratch_elems<T>());
  T* const sums = team.scratch<T>(0);
  // Processes the blocks in waves of `wave` blocks, because the scratch of thread 0 has room for the sums of only
  // `wave` blocks.
  const int64_t num_blocks = ceil_divide(rows, kBlockRows), wave = Team::scratch_elems<T>() / count;
  for (int64_t first = 0; first < num_blocks; first += wave) {
    const int64_t wave_blocks = std::min(wave, num_blocks - first);
    team.for_each(wave_blocks, [&](int64_t, int64_t i) {
      const int64_t row = (first + i) * kBlockRows;
      std::fill_n(sums + i * count, count, T(0));
      add_block(row, std::min(rows, row + kBlockRows), sums + i * count);
    });
    team.for_ranges(count, kColumnMultiple, [&](int64_t, int64_t begin, int64_t end) {
      for (int64_t i = 0; i < wave_blocks; ++i) add_to_result(begin, end, sums + i * count);
    });
  }
}

// sum += x over elements [begin, end).
template <typename T>
inline void add_elements(const T* x, int64_t begin, int64_t end, T* sum) {
#pragma omp simd
  for (int64_t c = begin; c < end; ++c) sum[c] += x[c];
}

}  // namespace tessera::cpu
