// Computes the steps of a linear layer that the kernel of its matrix product did not compute: bias, activation, dropout
// and residual.
#include "tessera/ops/cuda/activation.cuh"
#include "tessera/ops/cuda/cuda_kernels.h"
#include "tessera/ops/cuda/finish.h"
#include "tessera/ops/cuda/random.cuh"
#include "tessera/ops/cuda/types.cuh"

namespace tessera::cuda {
namespace {

constexpr int kThreads = 256;

// The arrays of a call: bias is [columns], all others are [rows, columns]. An absent array is null.
template <typename T>
struct Arrays {
  const T *from, *bias, *residual, *preactivation;
  T *to, *made_again;  // `to` may be `from` or `residual`; `made_again` may be `preactivation` (see finish.h)
  int64_t rows, columns;
  Activation activation;
};

// Returns one element of `to`. `mask` is the factor that dropout applies to this element; without dropout, it is 1.
template <typename T, bool kBackward>
__device__ inline Acc<T> finish(const Arrays<T>& arrays, Acc<T> value, Acc<T> bias, Acc<T> residual,
                                Acc<T> preactivation, Acc<T> mask) {
  constexpr bool kFast = sizeof(T) == 2;
  if constexpr (kBackward) {
    return residual + activation_gradient<kFast>(arrays.activation, value * mask, preactivation);
  } else {
    return residual + activate<kFast>(arrays.activation, value + bias) * mask;
  }
}

// Returns one element of `made_again`.
template <typename T>
__device__ inline Acc<T> made(const Arrays<T>& arrays, Acc<T> preactivation, Acc<T> mask) {
  return activate<sizeof(T) == 2>(arrays.activation, preactivation) * mask;
}

// Without dropout. A thread handles a pack of N neighbouring elements. N divides the number of columns.
template <typename T, bool kBackward, int N>
__global__ void finish_kernel(Arrays<T> arrays) {
  const int64_t i = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * N;
  if (i >= arrays.rows * arrays.columns) return;
  const auto from = load_pack<T, N>(arrays.from + i);
  Pack<T, N> bias{}, residual{}, pre{};
  if (arrays.bias) bias = load_pack<T, N>(arrays.bias + i % arrays.columns);
  if (arrays.residual) residual = load_pack<T, N>(arrays.residual + i);
  if (arrays.preactivation) pre = load_pack<T, N>(arrays.preactivation + i);
  Acc<T> values[N];
#pragma unroll
  for (int j = 0; j < N; ++j) {
    values[j] = finish<T, kBackward>(arrays, from[j], bias[j], residual[j], pre[j], Acc<T>(1));
  }
  store_pack(arrays.to + i, Pack<T, N>::of(values));
  if constexpr (kBackward) {
    if (!arrays.made_again) return;
#pragma unroll
    for (int j = 0; j < N; ++j) values[j] = made<T>(arrays, pre[j], Acc<T>(1));
    store_pack(arrays.made_again + i, Pack<T, N>::of(values));
  }
}

// With dropout. One random counter decides about four columns, which are 16 apart (ops/dropout_mask.h). A thread
// handles these four columns of a row. 16 neighbouring threads handle 64 neighbouring columns.
template <typename T, bool kBackward>
__global__ void finish_dropout_kernel(Arrays<T> arrays, Mask mask) {
  using A = Acc<T>;
  const int64_t counters = (arrays.columns + 63) / 64 * 16;  // per row
  const int64_t index = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t row = index / counters, counter = index % counters;
  if (row >= arrays.rows) return;
  const int64_t first = counter / 16 * 64 + counter % 16;
  const Words words = mask.words(row, static_cast<uint32_t>(first));
#pragma unroll
  for (int w = 0; w < 4; ++w) {
    const int64_t column = first + 16 * w, i = row * arrays.columns + column;
    if (column >= arrays.columns) return;
    const A factor = words.at[w] >= mask.threshold ? mask.scale<A>() : A(0),
            pre = arrays.preactivation ? to_acc(arrays.preactivation[i]) : A(0);
    arrays.to[i] = from_acc<T>(finish<T, kBackward>(arrays, to_acc(arrays.from[i]),
                                                    arrays.bias ? to_acc(arrays.bias[column]) : A(0),
                                                    arrays.residual ? to_acc(arrays.residual[i]) : A(0), pre, factor));
    if (kBackward && arrays.made_again) arrays.made_again[i] = from_acc<T>(made<T>(arrays, pre, factor));
  }
}

template <bool kBackward>
void finish_rows(const Context& context, const UnfusedSteps& call) {
  const View to = call.to;
  TESSERA_ASSERT(call.from.shape == to.shape && (!call.preactivation || call.preactivation.shape == to.shape));
  TESSERA_ASSERT(!call.made_again || (call.preactivation && call.made_again.shape == to.shape));
  TESSERA_ASSERT(!call.epilogue.residual || call.epilogue.residual.shape == to.shape);
  const int64_t rows = to.shape[0], columns = to.shape[1];
  if (to.num_elems() == 0) return;
  with_float_type(to.dtype, [&](auto zero) {
    using T = decltype(zero);
    const Arrays<T> arrays{data_of<T>(call.from),
                           data_of<T>(call.bias),
                           data_of<T>(call.epilogue.residual),
                           data_of<T>(call.preactivation),
                           data_of<T>(to),
                           data_of<T>(call.made_again),
                           rows,
                           columns,
                           call.epilogue.activation};
    if (call.epilogue.dropout.rate > 0) {
      TESSERA_ASSERT(call.epilogue.dropout.row_ids.num_elems() == rows);
      const int64_t counters = rows * ((columns + 63) / 64 * 16);  // of all rows
      finish_dropout_kernel<T, kBackward>
          <<<blocks_for(counters, kThreads), kThreads, 0, context.stream>>>(arrays, Mask::of(call.epilogue.dropout));
      return check_launch("finish_dropout_kernel");
    }
    with_pack<T>(columns, {call.from, call.bias, call.epilogue.residual, call.preactivation, to, call.made_again},
                 [&](auto n) {
                   finish_kernel<T, kBackward, n>
                       <<<blocks_for(rows * columns, kThreads * n), kThreads, 0, context.stream>>>(arrays);
                 });
    check_launch("finish_kernel");
  });
}

}  // namespace

void finish_forward(const Context& context, const UnfusedSteps& call) {
  finish_rows<false>(context, call);
}

void finish_backward(const Context& context, const UnfusedSteps& call) {
  finish_rows<true>(context, call);
}

void CudaKernels::dropout_backward(View d_y, const Dropout& dropout, View d_x) {
  finish_rows<true>(context_, {.from = d_y, .epilogue = {.dropout = dropout}, .to = d_x});
}

}  // namespace tessera::cuda
