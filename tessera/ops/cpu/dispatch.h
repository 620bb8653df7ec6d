// From a view's type to a template's.
#pragma once

#include "tessera/base/view.h"

namespace tessera::cpu {

// Calls body(T{}) with the floating-point type T of the CPU's kernels that `dtype` names.
template <typename Body>
void with_float_type(DType dtype, Body&& body) {
  TESSERA_ASSERT(dtype == DType::f32 || dtype == DType::f64);
  if (dtype == DType::f32) {
    body(float{});
  } else {
    body(double{});
  }
}

}  // namespace tessera::cpu
