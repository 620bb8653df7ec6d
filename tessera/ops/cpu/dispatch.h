// Helpers for templates whose parameter is the type of a view's elements.
#pragma once

#include <algorithm>

#include "tessera/base/view.h"

namespace tessera::cpu {

// Calls body(T{}). T is float if `dtype` is f32, and double if it is f64. No other type is allowed.
template <typename Body>
void with_float_type(DType dtype, Body&& body) {
  TESSERA_ASSERT(dtype == DType::f32 || dtype == DType::f64);
  if (dtype == DType::f32) {
    body(float{});
  } else {
    body(double{});
  }
}

// Calls body(data, first, count) for elements [begin, end) of a flat view, in order. `data` points to `count` elements
// of type T. `first` is the index of the first of these elements in the view. If the view has type T, one call gets all
// elements in place. Otherwise, each call gets one piece of the view, converted to T.
template <typename T, typename Body>
void for_pieces_as(View x, int64_t begin, int64_t end, Body&& body) {
  if (x.dtype == dtype_of<T>()) return body(x.as<T>() + begin, begin, end - begin);
  constexpr int64_t kPieceElems = 1024;
  T widened[kPieceElems];
  for (int64_t first = begin; first < end; first += kPieceElems) {
    const int64_t count = std::min(kPieceElems, end - first);
    tessera::convert(x.data + first * static_cast<int64_t>(size_of(x.dtype)), x.dtype, widened, dtype_of<T>(),
                     static_cast<size_t>(count));
    body(widened, first, count);
  }
}

}  // namespace tessera::cpu
