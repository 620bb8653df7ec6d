// Bias, activation, dropout and residual after a product that could not do them itself.
#include "tessera/ops/cuda/activation.cuh"
#include "tessera/ops/cuda/linear.h"
#include "tessera/ops/cuda/random.cuh"
#include "tessera/ops/cuda/types.cuh"

namespace tessera::cuda {
namespace {

constexpr int kThreads = 256;

// The arrays [rows, columns] of a call; null: not there. `to` may be `from` or `residual`.
template <typename T>
struct Arrays {
  const T *from, *bias, *residual, *preactivation;
  T* to;
  int64_t rows, columns;
  Activation activation;
};

// An element whose factor of the dropout is `mask`.
template <typename T, bool kBackward>
__device__ inline T finish(const Arrays<T>& arrays, T from, T bias, T residual, T preactivation, Acc<T> mask) {
  constexpr bool kFast = sizeof(T) == 2;
  Acc<T> value = to_acc(from);
  if constexpr (kBackward) {
    value *= mask;
    if (arrays.preactivation) value = activation_gradient<kFast>(arrays.activation, value, to_acc(preactivation));
  } else {
    if (arrays.bias) value += to_acc(bias);
    value = activate<kFast>(arrays.activation, value) * mask;
  }
  return from_acc<T>(arrays.residual ? to_acc(residual) + value : value);
}

// Without dropout an element is an element: packs of the whole array; N divides the number of columns.
template <typename T, bool kBackward, int N>
__global__ void finish_kernel(Arrays<T> arrays) {
  const int64_t i = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * N;
  if (i >= arrays.rows * arrays.columns) return;
  auto values = load_pack<T, N>(arrays.from + i);
  Pack<T, N> bias{}, residual{}, pre{};
  if (arrays.bias) bias = load_pack<T, N>(arrays.bias + i % arrays.columns);
  if (arrays.residual) residual = load_pack<T, N>(arrays.residual + i);
  if (arrays.preactivation) pre = load_pack<T, N>(arrays.preactivation + i);
#pragma unroll
  for (int j = 0; j < N; ++j) {
    values.at[j] = finish<T, kBackward>(arrays, values.at[j], bias.at[j], residual.at[j], pre.at[j], Acc<T>(1));
  }
  store_pack(arrays.to + i, values);
}

// With dropout a thread does the four columns of a counter, 16 apart; 16 threads do 64 neighbouring columns.
template <typename T, bool kBackward>
__global__ void finish_dropout_kernel(Arrays<T> arrays, Mask mask) {
  const int64_t counters = (arrays.columns + 63) / 64 * 16;  // of a row
  const int64_t index = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t row = index / counters, counter = index % counters;
  if (row >= arrays.rows) return;
  const int64_t first = counter / 16 * 64 + counter % 16;
  const Words words = mask.words(row, static_cast<uint32_t>(first));
#pragma unroll
  for (int w = 0; w < 4; ++w) {
    const int64_t column = first + 16 * w, i = row * arrays.columns + column;
    if (column >= arrays.columns) return;
    const Acc<T> factor = words.at[w] >= mask.threshold ? mask.scale<Acc<T>>() : Acc<T>(0);
    arrays.to[i] = finish<T, kBackward>(arrays, arrays.from[i], arrays.bias ? arrays.bias[column] : T{},
                                        arrays.residual ? arrays.residual[i] : T{},
                                        arrays.preactivation ? arrays.preactivation[i] : T{}, factor);
  }
}

template <bool kBackward>
void finish_rows(const Context& context, View from, View bias, const LinearEpilogue& epilogue, View preactivation,
                 View to) {
  TESSERA_ASSERT(from.shape == to.shape && (!preactivation || preactivation.shape == to.shape));
  TESSERA_ASSERT(!epilogue.residual || epilogue.residual.shape == to.shape);
  const int64_t rows = to.shape[0], columns = to.shape[1];
  if (to.num_elems() == 0) return;
  with_float_type(to.dtype, [&](auto zero) {
    using T = decltype(zero);
    const Arrays<T> arrays{data_of<T>(from),
                           data_of<T>(bias),
                           data_of<T>(epilogue.residual),
                           data_of<T>(preactivation),
                           data_of<T>(to),
                           rows,
                           columns,
                           epilogue.activation};
    if (epilogue.dropout.rate > 0) {
      TESSERA_ASSERT(epilogue.dropout.row_ids.num_elems() == rows);
      const int64_t counters = rows * ((columns + 63) / 64 * 16);
      finish_dropout_kernel<T, kBackward>
          <<<blocks_for(counters, kThreads), kThreads, 0, context.stream>>>(arrays, Mask::of(epilogue.dropout));
      return;
    }
    constexpr int N = kPackOf<T>;
    bool aligned = columns % N == 0;
    for (const View& view : {from, bias, epilogue.residual, preactivation, to}) {
      aligned = aligned && aligned_for<T>(view.data, N);
    }
    if (aligned) {
      finish_kernel<T, kBackward, N><<<blocks_for(rows * columns, kThreads * N), kThreads, 0, context.stream>>>(arrays);
    } else {
      finish_kernel<T, kBackward, 1><<<blocks_for(rows * columns, kThreads), kThreads, 0, context.stream>>>(arrays);
    }
  });
  check_launch("finish_kernel");
}

}  // namespace

void finish_forward(const Context& context, View from, View bias, const LinearEpilogue& epilogue, View to) {
  finish_rows<false>(context, from, bias, epilogue, {}, to);
}

void finish_backward(const Context& context, View from, const LinearEpilogue& epilogue, View preactivation, View to) {
  finish_rows<true>(context, from, {}, epilogue, preactivation, to);
}

}  // namespace tessera::cuda
