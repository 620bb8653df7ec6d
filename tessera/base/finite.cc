#include "tessera/base/finite.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tessera {

namespace {

// Elements per block. A vectorized loop tests whether a block contains an element that find_non_finite() must report.
// If it does, a second loop finds the first such element in the block.
constexpr int64_t kBlockElems = 4096;

// The bits of the smallest f32 magnitude that is infinite after rounding to `as`.
uint32_t end_of(DType as) {
  switch (as) {
    case DType::f16:
      return 0x477ff000u;  // 65520
    case DType::bf16:
      return 0x7f7f8000u;
    default:
      return 0x7f800000u;
  }
}

template <DType D>
int64_t find(View x, DType as) {
  const auto* data = reinterpret_cast<const typename Element<D>::Type*>(x.data);
  const uint32_t end = end_of(as);
  const auto is_beyond = [&](int64_t i) {
    if (D == DType::f64 && as == DType::f64) return !std::isfinite(Element<D>::load(data[i]));
    const auto value = static_cast<float>(Element<D>::load(data[i]));
    return (std::bit_cast<uint32_t>(value) & 0x7fffffffu) >= end;
  };
  const int64_t count = x.num_elems();
  for (int64_t begin = 0; begin < count; begin += kBlockElems) {
    const int64_t last = std::min(begin + kBlockElems, count);
    int found = 0;
    for (int64_t i = begin; i < last; ++i) found |= is_beyond(i);
    for (int64_t i = begin; found && i < last; ++i) {
      if (is_beyond(i)) return i;
    }
  }
  return -1;
}

}  // namespace

int64_t find_non_finite(View x, DType as) {
  switch (x.dtype) {
    case DType::f64:
      return find<DType::f64>(x, as);
    case DType::f32:
      return find<DType::f32>(x, as);
    case DType::f16:
      return find<DType::f16>(x, as);
    case DType::bf16:
      return find<DType::bf16>(x, as);
    default:
      assertion_failed("the view is of a floating-point type", __FILE__, __LINE__);
  }
}

double largest_of(DType dtype) {
  switch (dtype) {
    case DType::f16:
      return 65504;
    case DType::bf16:
      return 0x1.fep127;
    case DType::f32:
      return std::numeric_limits<float>::max();
    default:
      return std::numeric_limits<double>::max();
  }
}

}  // namespace tessera
