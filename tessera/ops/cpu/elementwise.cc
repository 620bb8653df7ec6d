// Operations on complete arrays: setting, converting, joining, summing.
#include <cstring>

#include "tessera/base/math.h"
#include "tessera/ops/cpu/cpu_kernels.h"
#include "tessera/ops/cpu/dispatch.h"

namespace tessera::cpu {

namespace {

constexpr int64_t kGrainElems = 16384;  // for fewer elements, waking a thread costs more than it saves

// Elements per block of add_squares(). One thread sums the squares of a block. The sums of the blocks are then
// added in order. The bounds of the blocks do not depend on the number of threads, so the result does not either.
constexpr int64_t kSumBlockElems = 65536;

template <typename T>
double sum_of_squares(const T* x, int64_t count) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < count; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return sum;
}

void add_squares(Team& team, View x, View sum) {
  with_float_type(size_of(x.dtype) == 2 ? DType::f32 : x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const int64_t count = x.num_elems(), num_blocks = ceil_divide(count, kSumBlockElems);
    double* partial = team.scratch<double>(0);
    double total = *sum.as<double>();
    // Processes the blocks in waves, because the scratch of thread 0 must hold the sums of all blocks of a wave.
    const int64_t wave = Team::scratch_elems<double>();
    for (int64_t first = 0; first < num_blocks; first += wave) {
      const int64_t wave_blocks = std::min(wave, num_blocks - first);
      team.for_ranges(wave_blocks, 1, [&](int64_t, int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t from = (first + i) * kSumBlockElems;
          partial[i] = 0;
          for_pieces_as<T>(x, from, std::min(from + kSumBlockElems, count),
                           [&](const T* data, int64_t, int64_t n) { partial[i] += sum_of_squares(data, n); });
        }
      });
      for (int64_t i = 0; i < wave_blocks; ++i) total += partial[i];
    }
    *sum.as<double>() = total;
  });
}

}  // namespace

void CpuKernels::fill(View x, double value) {
  if (value == 0) {  // in every type, all bits of zero are 0
    team_.for_ranges(x.bytes(), kGrainElems, [&](int64_t, int64_t begin, int64_t end) {
      std::memset(x.data + begin, 0, static_cast<size_t>(end - begin));
    });
    return;
  }
  const auto fill_with = [&](auto element) {
    auto* data = reinterpret_cast<decltype(element)*>(x.data);
    team_.for_ranges(x.num_elems(), kGrainElems,
                     [&](int64_t, int64_t begin, int64_t end) { std::fill(data + begin, data + end, element); });
  };
  if (size_of(x.dtype) == 2) {
    uint16_t bits = 0;
    tessera::convert(&value, DType::f64, &bits, x.dtype, 1);
    fill_with(bits);
  } else {
    with_float_type(x.dtype, [&](auto zero) { fill_with(static_cast<decltype(zero)>(value)); });
  }
}

void CpuKernels::convert(View from, View to) {
  TESSERA_ASSERT(from.shape == to.shape);
  const int64_t from_size = static_cast<int64_t>(size_of(from.dtype)),
                to_size = static_cast<int64_t>(size_of(to.dtype));
  team_.for_ranges(from.num_elems(), kGrainElems, [&](int64_t, int64_t begin, int64_t end) {
    tessera::convert(from.data + begin * from_size, from.dtype, to.data + begin * to_size, to.dtype,
                     static_cast<size_t>(end - begin));
  });
}

void CpuKernels::join(View narrow, View rest, View x) {
  TESSERA_ASSERT(rest.dtype == rest_of(narrow.dtype) && x.dtype == DType::f32);
  TESSERA_ASSERT(narrow.shape == x.shape && rest.shape == x.shape);
  const auto* upper = reinterpret_cast<const uint16_t*>(narrow.data);
  const auto* lower = reinterpret_cast<const int16_t*>(rest.data);
  team_.for_ranges(x.num_elems(), kGrainElems, [&](int64_t, int64_t begin, int64_t end) {
    tessera::join(upper + begin, lower + begin, rest.dtype, x.as<float>() + begin, static_cast<size_t>(end - begin));
  });
}

void CpuKernels::add(View x, View sum) {
  TESSERA_ASSERT(x.shape == sum.shape);
  with_float_type(sum.dtype, [&](auto zero) {
    using T = decltype(zero);
    team_.for_ranges(x.num_elems(), kGrainElems, [&](int64_t, int64_t begin, int64_t end) {
      for_pieces_as<T>(x, begin, end, [&](const T* __restrict from, int64_t first, int64_t count) {
        T* __restrict to = sum.as<T>() + first;
#pragma omp simd
        for (int64_t i = 0; i < count; ++i) to[i] += from[i];
      });
    });
  });
}

void CpuKernels::add_sums_of_squares(std::span<const View> arrays, View sums) {
  for (int64_t i = 0; i < std::ssize(arrays); ++i) {
    add_squares(team_, arrays[static_cast<size_t>(i)], sums.rows(i, i + 1));
  }
}

}  // namespace tessera::cpu
