// Reads, writes and adds rows of a matrix by index.
#include <cstring>

#include "tessera/ops/cpu/cpu_kernels.h"
#include "tessera/ops/cpu/dispatch.h"

namespace tessera::cpu {

namespace {

constexpr int64_t kGrainRows = 8;
constexpr int64_t kColumnMultiple = 64;  // at least a cache line, so threads seldom write to the same line

}  // namespace

void CpuKernels::gather_rows(View x, View rows, View y) {
  TESSERA_ASSERT(x.dtype == y.dtype && y.shape == (Shape{rows.num_elems(), x.shape[1]}));
  const int32_t* row = rows.as<int32_t>();
  const int64_t row_bytes = x.shape[1] * static_cast<int64_t>(size_of(x.dtype));
  team_.for_ranges(rows.num_elems(), kGrainRows, [&](int64_t, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      TESSERA_ASSERT(row[i] >= 0 && row[i] < x.shape[0]);
      std::memcpy(y.data + i * row_bytes, x.data + row[i] * row_bytes, static_cast<size_t>(row_bytes));
    }
  });
}

void CpuKernels::scatter_rows(View x, View rows, View y) {
  TESSERA_ASSERT(x.dtype == y.dtype && x.shape == (Shape{rows.num_elems(), y.shape[1]}));
  const int32_t* row = rows.as<int32_t>();
  const int64_t row_bytes = x.shape[1] * static_cast<int64_t>(size_of(x.dtype));
  team_.for_ranges(y.shape[0], kGrainRows, [&](int64_t, int64_t begin, int64_t end) {
    std::memset(y.data + begin * row_bytes, 0, static_cast<size_t>((end - begin) * row_bytes));
  });
  team_.for_ranges(rows.num_elems(), kGrainRows, [&](int64_t, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      TESSERA_ASSERT(row[i] >= 0 && row[i] < y.shape[0]);
      std::memcpy(y.data + row[i] * row_bytes, x.data + i * row_bytes, static_cast<size_t>(row_bytes));
    }
  });
}

// Each thread has a range of columns. It adds these columns of all rows, in the order of the rows. The sums therefore
// do not depend on the number of threads.
void CpuKernels::embedding_backward(View ids, View d_y, View d_weight) {
  const int64_t num_rows = ids.num_elems(), channels = d_weight.shape[1];
  TESSERA_ASSERT(d_y.shape == (Shape{num_rows, channels}));
  const int32_t* id = ids.as<int32_t>();
  with_float_type(d_y.dtype, [&](auto zero) {
    using T = decltype(zero);
    const T* source = d_y.as<T>();
    T* target = d_weight.as<T>();
    team_.for_ranges(channels, kColumnMultiple, [&](int64_t, int64_t begin, int64_t end) {
      for (int64_t i = 0; i < num_rows; ++i) {
        TESSERA_ASSERT(id[i] >= 0 && id[i] < d_weight.shape[0]);
        const T* from = source + i * channels;
        T* to = target + id[i] * channels;
#pragma omp simd
        for (int64_t c = begin; c < end; ++c) to[c] += from[c];
      }
    });
  });
}

}  // namespace tessera::cpu
