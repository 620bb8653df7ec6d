// The activations of gated layers.
#pragma once

#include <type_traits>

#include "tessera/ops/cuda/activation.cuh"

namespace tessera::cuda {

// The activation of one element x: `value` is activation(x), and `slope` is the derivative of the activation at x.
template <typename A>
struct Gate {
  A value, slope;
};
// With kFast, uses the fast exponential and division of the hardware, like gelu_sigmoid().
template <Activation kActivation, bool kFast, typename A>
__device__ inline Gate<A> gate_of(A x) {
  if constexpr (kActivation == Activation::silu) {
    A s;
    if constexpr (kFast) {
      s = __fdividef(1.0f, 1.0f + __expf(-x));
    } else {
      s = A(1) / (A(1) + exp(-x));
    }
    return {x * s, s * (A(1) + x * (A(1) - s))};
  } else {
    return {x * gelu_sigmoid<kFast>(x), activation_gradient<kFast>(kActivation, A(1), x)};
  }
}

// Calls body with the activation as a compile-time constant.
template <typename Body>
void with_gate(Activation activation, Body&& body) {
  TESSERA_ASSERT(activation == Activation::silu || activation == Activation::gelu_tanh);
  if (activation == Activation::silu) return body(std::integral_constant<Activation, Activation::silu>());
  body(std::integral_constant<Activation, Activation::gelu_tanh>());
}

}  // namespace tessera::cuda
