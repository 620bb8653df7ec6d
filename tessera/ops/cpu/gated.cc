// Gated feed-forward layers: h = activation(gate) ∘ up, element by element.
#include "tessera/ops/cpu/cpu_kernels.h"
#include "tessera/ops/cpu/dispatch.h"
#include "tessera/ops/cpu/vector_math.h"

namespace tessera::cpu {

namespace {

constexpr int64_t kGrainRows = 2;

template <typename T>
struct Silu {
  static T value(T x) { return silu(x); }
  static T derivative(T x) { return silu_derivative(x); }
};
template <typename T>
struct Gelu {
  static T value(T x) { return gelu(x); }
  static T derivative(T x) { return gelu_derivative(x); }
};

template <typename Function, typename T>
void forward_row(const T* gate, const T* up, int64_t count, T* h) {
#pragma omp simd
  for (int64_t j = 0; j < count; ++j) h[j] = Function::value(gate[j]) * up[j];
}

// An output may be the same array as an input: `d_gate` as `gate`, `d_up` as `up`, and `h` as `d_h`. `h` may be null.
template <typename Function, typename T>
void backward_row(const T* d_h, const T* gate, const T* up, int64_t count, T* d_gate, T* d_up, T* h) {
  if (h) {
#pragma omp simd
    for (int64_t j = 0; j < count; ++j) {
      const T g = gate[j], u = up[j], d = d_h[j], value = Function::value(g);
      d_gate[j] = d * u * Function::derivative(g);
      d_up[j] = d * value;
      h[j] = value * u;
    }
  } else {
#pragma omp simd
    for (int64_t j = 0; j < count; ++j) {
      const T g = gate[j], u = up[j], d = d_h[j];
      d_gate[j] = d * u * Function::derivative(g);
      d_up[j] = d * Function::value(g);
    }
  }
}

template <typename Body>
void with_function(DType dtype, Activation activation, Body&& body) {
  TESSERA_ASSERT(activation == Activation::silu || activation == Activation::gelu_tanh);
  with_float_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    if (activation == Activation::silu)
      body(zero, Silu<T>{});
    else
      body(zero, Gelu<T>{});
  });
}

}  // namespace

void CpuKernels::gated_forward(View gate_up, Activation activation, View h) {
  const int64_t rows = h.shape[0], F = h.shape[1];
  TESSERA_ASSERT(gate_up.shape == (Shape{rows, 2 * F}));
  with_function(h.dtype, activation, [&](auto zero, auto function) {
    using T = decltype(zero);
    team_.for_ranges(rows, kGrainRows, [&](int64_t, int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const T* gate = gate_up.as<T>() + row * 2 * F;
        forward_row<decltype(function)>(gate, gate + F, F, h.as<T>() + row * F);
      }
    });
  });
}

void CpuKernels::gated_backward(const GatedBackward& call) {
  const int64_t rows = call.d_h.shape[0], F = call.d_h.shape[1];
  TESSERA_ASSERT(call.gate_up.shape == (Shape{rows, 2 * F}) && call.d_gate_up.shape == call.gate_up.shape);
  TESSERA_ASSERT(!call.h || call.h.shape == call.d_h.shape);
  with_function(call.d_h.dtype, call.activation, [&](auto zero, auto function) {
    using T = decltype(zero);
    team_.for_ranges(rows, kGrainRows, [&](int64_t, int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const T* gate = call.gate_up.as<T>() + row * 2 * F;
        T* const d_gate = call.d_gate_up.as<T>() + row * 2 * F;
        backward_row<decltype(function)>(call.d_h.as<T>() + row * F, gate, gate + F, F, d_gate, d_gate + F,
                                         call.h ? call.h.as<T>() + row * F : nullptr);
      }
    });
  });
}

}  // namespace tessera::cpu
