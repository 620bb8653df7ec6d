// Joins the factors of adapters into one matrix, and splits its gradient (Kernels::join_factors, split_factors).
#include "tessera/ops/cuda/cuda_kernels.h"
#include "tessera/ops/cuda/types.cuh"

namespace tessera::cuda {
namespace {

constexpr int kThreads = 256;

// The factors of a call. Their arrays have elements of type T.
template <typename T>
struct Places {
  T* factor[kMaxFactors];
  int64_t row[kMaxFactors], rows[kMaxFactors];
  int column[kMaxFactors], columns[kMaxFactors];
  Acc<T> scale[kMaxFactors];
  int count;
};

template <typename T>
Places<T> places_of(std::span<const FactorPlace> factors, View joined) {
  TESSERA_ASSERT(factors.size() <= kMaxFactors);
  Places<T> places{};
  for (const FactorPlace& place : factors) {
    const Shape& shape = place.factor.shape;
    TESSERA_ASSERT(place.factor.dtype == joined.dtype);
    TESSERA_ASSERT(place.row + shape[0] <= joined.shape[0] && place.column + shape[1] <= joined.shape[1]);
    const int i = places.count++;
    places.factor[i] = reinterpret_cast<T*>(place.factor.data);
    places.row[i] = place.row;
    places.rows[i] = shape[0];
    places.column[i] = static_cast<int>(place.column);
    places.columns[i] = static_cast<int>(shape[1]);
    places.scale[i] = static_cast<Acc<T>>(place.scale);
  }
  return places;
}

// One thread handles one element of `joined` [O, R], which belongs to at most one factor.
template <typename T, bool kSplit>
__global__ void move_factors_kernel(Places<T> places, T* joined, int64_t elems, int width, bool fresh) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= elems) return;
  const int64_t row = i / width;
  const int column = static_cast<int>(i % width);
  for (int p = 0; p < places.count; ++p) {
    const int64_t r = row - places.row[p];
    const int c = column - places.column[p];
    if (r < 0 || r >= places.rows[p] || c < 0 || c >= places.columns[p]) continue;
    T& element = places.factor[p][r * places.columns[p] + c];
    if constexpr (kSplit) {
      const Acc<T> value = places.scale[p] * to_acc(joined[i]);
      element = from_acc<T>(fresh ? value : to_acc(element) + value);
    } else {
      joined[i] = from_acc<T>(places.scale[p] * to_acc(element));
    }
    return;
  }
  if constexpr (!kSplit) joined[i] = from_acc<T>(Acc<T>(0));
}

template <bool kSplit>
void move_factors(const Context& context, std::span<const FactorPlace> factors, View joined, bool fresh) {
  const int64_t elems = joined.num_elems();
  with_float_type(joined.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto blocks = static_cast<unsigned>((elems + kThreads - 1) / kThreads);
    move_factors_kernel<T, kSplit><<<blocks, kThreads, 0, context.stream>>>(places_of<T>(factors, joined),
                                                                            reinterpret_cast<T*>(joined.data), elems,
                                                                            static_cast<int>(joined.shape[1]), fresh);
  });
  check_launch("move_factors_kernel");
}

}  // namespace

void CudaKernels::join_factors(std::span<const FactorPlace> factors, View joined) {
  move_factors<false>(context_, factors, joined, true);
}

void CudaKernels::split_factors(View joined, std::span<const FactorPlace> factors, bool fresh) {
  move_factors<true>(context_, factors, joined, fresh);
}

}  // namespace tessera::cuda
