// Gated feed-forward layers: h = activation(gate) ∘ up. A row of the input gate_up holds gate, followed by up.
#include "tessera/ops/cuda/cuda_kernels.h"
#include "tessera/ops/cuda/gate.cuh"
#include "tessera/ops/cuda/types.cuh"

namespace tessera::cuda {
namespace {

constexpr int kThreads = 256;

// In both kernels, a thread handles a pack of N neighbouring elements of h, and the same elements of gate and of up. A
// row of h has `packs_of_row` packs, and a row of gate_up has twice as many. In the backward kernel, outputs may be the
// same arrays as inputs, so each thread reads all its inputs before it writes.
template <typename T, int N, Activation kActivation>
__global__ void __launch_bounds__(kThreads)
    gated_forward_kernel(const T* __restrict__ gate_up, T* __restrict__ h, int64_t packs, int64_t packs_of_row) {
  const int64_t pack = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (pack >= packs) return;
  const T* const from = gate_up + (pack + pack / packs_of_row * packs_of_row) * N;
  const auto gates = load_pack<T, N>(from), ups = load_pack<T, N>(from + packs_of_row * N);
  Acc<T> values[N];
#pragma unroll
  for (int j = 0; j < N; ++j) values[j] = gate_of<kActivation, sizeof(T) == 2>(gates[j]).value * ups[j];
  store_pack(h + pack * N, Pack<T, N>::of(values));
}

template <typename T, int N, Activation kActivation>
__global__ void __launch_bounds__(kThreads)
    gated_backward_kernel(const T* d_h, const T* gate_up, T* d_gate_up, T* h, int64_t packs, int64_t packs_of_row) {
  const int64_t pack = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (pack >= packs) return;
  const int64_t at = (pack + pack / packs_of_row * packs_of_row) * N, up = packs_of_row * N;
  const auto gates = load_pack<T, N>(gate_up + at), ups = load_pack<T, N>(gate_up + at + up),
             gradients = load_pack<T, N>(d_h + pack * N);
  Acc<T> d_gates[N], d_ups[N], values[N];
#pragma unroll
  for (int j = 0; j < N; ++j) {
    const auto gate = gate_of<kActivation, sizeof(T) == 2>(gates[j]);
    d_gates[j] = gradients[j] * ups[j] * gate.slope;
    d_ups[j] = gradients[j] * gate.value;
    values[j] = gate.value * ups[j];
  }
  store_pack(d_gate_up + at, Pack<T, N>::of(d_gates));
  store_pack(d_gate_up + at + up, Pack<T, N>::of(d_ups));
  if (h) store_pack(h + pack * N, Pack<T, N>::of(values));
}

}  // namespace

void CudaKernels::gated_forward(View gate_up, Activation activation, View h) {
  const int64_t channels = h.shape[1];
  TESSERA_ASSERT(gate_up.shape == (Shape{h.shape[0], 2 * channels}));
  if (h.num_elems() == 0) return;
  with_float_type(h.dtype, [&](auto zero) {
    using T = decltype(zero);
    with_pack<T>(channels, {gate_up, h}, [&](auto n) {
      with_gate(activation, [&](auto kind) {
        const int64_t packs = h.num_elems() / n;
        gated_forward_kernel<T, n, kind><<<blocks_for(packs, kThreads), kThreads, 0, context_.stream>>>(
            data_of<T>(gate_up), data_of<T>(h), packs, channels / n);
      });
    });
  });
  check_launch("gated_forward_kernel");
}

void CudaKernels::gated_backward(const GatedBackward& call) {
  const int64_t channels = call.d_h.shape[1];
  TESSERA_ASSERT(call.gate_up.shape == (Shape{call.d_h.shape[0], 2 * channels}) &&
                 call.d_gate_up.shape == call.gate_up.shape);
  TESSERA_ASSERT(!call.h || call.h.shape == call.d_h.shape);
  if (call.d_h.num_elems() == 0) return;
  with_float_type(call.d_h.dtype, [&](auto zero) {
    using T = decltype(zero);
    with_pack<T>(channels, {call.d_h, call.gate_up, call.d_gate_up, call.h}, [&](auto n) {
      with_gate(call.activation, [&](auto kind) {
        const int64_t packs = call.d_h.num_elems() / n;
        gated_backward_kernel<T, n, kind><<<blocks_for(packs, kThreads), kThreads, 0, context_.stream>>>(
            data_of<T>(call.d_h), data_of<T>(call.gate_up), data_of<T>(call.d_gate_up), data_of<T>(call.h), packs,
            channels / n);
      });
    });
  });
  check_launch("gated_backward_kernel");
}

}  // namespace tessera::cuda
