// Matrices in 8 bits (Kernels::quantize, dequantize8), and the kernels that round their results to 8 bits instead of
// writing them in 16 bits: gated layers, and the output of a norm that backward computes again.
#include "tessera/ops/cuda/cuda_kernels.h"
#include "tessera/ops/cuda/float8.cuh"
#include "tessera/ops/cuda/gate.cuh"
#include "tessera/ops/cuda/norm_rows.cuh"

namespace tessera::cuda {
namespace {

constexpr int kTile = static_cast<int>(kFloat8Block);
constexpr int kThreads = 512;
constexpr int kElems = kFloat8Pack;                // neighbouring columns of a thread: a load of 16 bytes
constexpr int kAcross = kFloat8Threads;            // threads of a row
constexpr int kRows = kTile * kAcross / kThreads;  // neighbouring rows of a thread
static_assert(kAcross == 16 && kRows == 4);
constexpr int kForwardThreads = 256, kForwardRows = kForwardThreads / kAcross * 2;  // of gated_forward8_kernel

// Where one array of the tile goes.
struct Targets {
  Float8Target rows, columns;
  Float8ScaleKind kind_of_columns = Float8ScaleKind::power_of_two;  // of their squares
};

// ---- sources: arrays [R, K] that a kernel rounds. load() computes kElems neighbouring elements of a row, each array
// rounded to T.

template <typename T>
struct Plain {
  using Type = T;
  static constexpr int kArrays = 1;
  const T* x;
  int64_t pitch;

  __device__ void load(int64_t row, int64_t column, Pack<T, kElems> (&arrays)[1]) const {
    arrays[0] = load_pack<T, kElems>(x + row * pitch + column);
  }
};

// The output of a norm with the statistics of `Row`.
template <typename T, template <typename> class Row>
struct Normed {
  using Type = T;
  static constexpr int kArrays = 1;
  const T *x, *weight, *bias;
  const float* stats;
  int64_t pitch;

  __device__ void load(int64_t row, int64_t column, Pack<T, kElems> (&arrays)[1]) const {
    const auto found = Row<float>::load(stats, row);
    const auto xs = load_pack<T, kElems>(x + row * pitch + column), weights = load_pack<T, kElems>(weight + column);
    Pack<T, kElems> biases = {};
    if constexpr (Row<float>::kParameters > 1) biases = load_pack<T, kElems>(bias + column);
    float values[kElems];
#pragma unroll
    for (int j = 0; j < kElems; ++j) values[j] = found.y(xs[j], weights[j], biases[j]);
    arrays[0] = Pack<T, kElems>::of(values);
  }
};

// h, d_gate and d_up, from gate_up [R, 2K] in 8 bits.
template <typename T, Activation kActivation>
struct GatedBackwardSource {
  using Type = T;
  static constexpr int kArrays = 3;
  const T* d_h;
  Float8Target gate_up;
  int64_t channels;

  __device__ void load_gate_up(int64_t row, int64_t column, float (&values)[kElems]) const {
    const float scale = gate_up.scales[column / kTile * gate_up.scale_pitch + row];
    const uint2 codes = *reinterpret_cast<const uint2*>(gate_up.values + row * gate_up.pitch + column);
#pragma unroll
    for (int j = 0; j < kElems; j += 2) {
      const float2 two = values_of_two((j < 4 ? codes.x : codes.y) >> (j % 4 * 8) & 0xffff);
      values[j] = two.x * scale, values[j + 1] = two.y * scale;
    }
  }
  __device__ void load(int64_t row, int64_t column, Pack<T, kElems> (&arrays)[3]) const {
    float gates[kElems], ups[kElems], values[kElems], d_gates[kElems], d_ups[kElems];
    const auto gradients = load_pack<T, kElems>(d_h + row * channels + column);
    load_gate_up(row, column, gates), load_gate_up(row, channels + column, ups);
#pragma unroll
    for (int j = 0; j < kElems; ++j) {
      const auto gate = gate_of<kActivation, true>(gates[j]);
      d_gates[j] = gradients[j] * ups[j] * gate.slope;
      d_ups[j] = gradients[j] * gate.value;
      values[j] = gate.value * ups[j];
    }
    arrays[0] = Pack<T, kElems>::of(values);
    arrays[1] = Pack<T, kElems>::of(d_gates), arrays[2] = Pack<T, kElems>::of(d_ups);
  }
};

template <int kArrays>
struct AllTargets {
  Targets of[kArrays];
};

// A thread block rounds one tile of each array of the source, [R, K]: a square of 8-bit values, which has one block of
// values in each row and in each column. The values stay in registers; shared memory only transposes codes. K is a
// multiple of 16, and `padded` is float8_terms(R).
template <typename Source>
__global__ void __launch_bounds__(kThreads, 2)
    quantize_kernel(const Source source, int64_t R, int64_t K, int64_t padded,
                    const AllTargets<Source::kArrays> targets) {
  using T = typename Source::Type;
  constexpr int kArrays = Source::kArrays, kWords = kTile / 4, kWarps = kThreads / kWarp, kPairs = kElems / 2;
  __shared__ __align__(16) uint32_t largest_of_warps[kWarps][kTile / 2];  // of two columns each
  __shared__ uint32_t largest_in_warps[kArrays][kWarps];
  __shared__ __align__(16) float inverses[kTile];
  __shared__ __align__(16) uint32_t codes[kTile * kWords];  // [column][group of rows], words swizzled
  const int thread = static_cast<int>(threadIdx.x), across = thread % kAcross, group = thread / kAcross;
  const int64_t first_row = int64_t{blockIdx.y} * kTile, first_column = int64_t{blockIdx.x} * kTile;
  const int64_t row = first_row + group * kRows, column = first_column + across * kElems;
  Pack<T, kElems> arrays[kRows][kArrays];
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    if (row + i < R && column < K) {
      source.load(row + i, column, arrays[i]);
    } else {
#pragma unroll
      for (int a = 0; a < kArrays; ++a) arrays[i][a] = {};
    }
  }
#pragma unroll
  for (int a = 0; a < kArrays; ++a) {
    const Float8Target &rows = targets.of[a].rows, &columns = targets.of[a].columns;
    uint32_t of_columns[kPairs], of_tile = 0;
#pragma unroll
    for (int j = 0; j < kPairs; ++j) {
      const auto magnitudes_of = [&](int i) { return magnitudes(arrays[i][a].words[j]); };
      of_columns[j] = largest_of(largest_of(magnitudes_of(0), magnitudes_of(1), magnitudes_of(2)), magnitudes_of(3));
    }
    if (rows.squares || columns.squares) {
      of_tile = largest_of(largest_of(of_columns[0], of_columns[1], of_columns[2]), of_columns[3]);
      of_tile = warp_reduce(f32_bits_of_larger(of_tile), Max());
      if (thread % kWarp == 0) largest_in_warps[a][thread / kWarp] = of_tile;
      __syncthreads();
#pragma unroll
      for (int w = 0; w < kWarps; ++w) of_tile = max(of_tile, largest_in_warps[a][w]);
    }
    if (rows.values) {
      Float8Scale own;  // of one of the four rows: their threads share the work
      if (rows.squares) {
        own = float8_scale(of_tile, Float8ScaleKind::quotient);
        if (thread == 0) rows.scales[blockIdx.y * rows.scale_pitch + blockIdx.x] = own.scale;
      } else {
        uint32_t of_rows[kRows / 2];  // of two rows each
#pragma unroll
        for (int i = 0; i < kRows; i += 2) {
          const uint32_t even = largest_of(arrays[i][a]), odd = largest_of(arrays[i + 1][a]);
          of_rows[i / 2] = largest_of_block(largest_of(__byte_perm(even, odd, 0x5410), __byte_perm(even, odd, 0x7632)));
        }
        const uint32_t two = across & 2 ? of_rows[1] : of_rows[0];
        own = float8_scale(across & 1 ? two & 0xffff0000u : two << 16, Float8ScaleKind::quotient);
        if (across < kRows && row + across < R) {
          rows.scales[blockIdx.x * rows.scale_pitch + row + across] = own.scale;
        }
      }
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        const float inverse = __shfl_sync(0xffffffffu, own.inverse, i, kAcross);
        if (row + i < R && column < K) store_codes(arrays[i][a], inverse, row + i, column, rows);
      }
    }
    if (!columns.values) continue;
    if (columns.squares) {
      const auto [scale, inverse] = float8_scale(of_tile, targets.of[a].kind_of_columns);
      if (thread < kTile) inverses[thread] = inverse;
      if (thread == 0) columns.scales[blockIdx.x * columns.scale_pitch + blockIdx.y] = scale;
    } else {
#pragma unroll
      for (int j = 0; j < kPairs; ++j) {
        of_columns[j] = largest_of(of_columns[j], __shfl_xor_sync(0xffffffffu, of_columns[j], kAcross));
      }
      if (thread % kWarp < kAcross) {
        *reinterpret_cast<uint4*>(&largest_of_warps[thread / kWarp][across * kPairs]) =
            make_uint4(of_columns[0], of_columns[1], of_columns[2], of_columns[3]);
      }
      __syncthreads();
      if (thread < kTile) {
        uint32_t largest = 0;
#pragma unroll
        for (int w = 0; w < kWarps; ++w) largest = largest_of(largest, largest_of_warps[w][thread / 2]);
        const auto [scale, inverse] =
            float8_scale(thread % 2 ? largest & 0xffff0000u : largest << 16, Float8ScaleKind::power_of_two);
        inverses[thread] = inverse;
        if (first_column + thread < K) columns.scales[blockIdx.y * columns.scale_pitch + first_column + thread] = scale;
      }
    }
    __syncthreads();
    // The swizzle lets neighbouring threads write to different banks.
#pragma unroll
    for (int j = 0; j < kElems; j += 4) {
      const float4 four = *reinterpret_cast<const float4*>(&inverses[across * kElems + j]);
      const float inverse[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        codes[(across * kElems + j + c) * kWords + (group ^ (2 * across))] =
            codes_of_four(arrays[0][a][j + c] * inverse[c], arrays[1][a][j + c] * inverse[c],
                          arrays[2][a][j + c] * inverse[c], arrays[3][a][j + c] * inverse[c]);
      }
    }
    __syncthreads();
    constexpr int kQuads = kWords / 4;  // loads of 16 bytes per column
#pragma unroll
    for (int turn = 0; turn < kTile * kQuads / kThreads; ++turn) {
      const int own = (turn * kThreads + thread) / kQuads, quad = thread % kQuads;
      const int swizzle = 2 * (own / kElems);
      uint4 words = *reinterpret_cast<const uint4*>(&codes[own * kWords + ((4 * quad) ^ (swizzle & ~3))]);
      if (swizzle & 2) words = make_uint4(words.z, words.w, words.x, words.y);
      const int64_t at_column = first_column + own, at_row = first_row + 16 * quad;
      if (at_column < K && at_row < padded) {  // `padded` is a multiple of 16
        *reinterpret_cast<uint4*>(columns.values + at_column * columns.pitch + at_row) = words;
      }
    }
    // No barrier: the next array has one between these reads and its writes to `codes`, and between the last reads of
    // the other arrays in shared memory and its writes to them.
  }
}

// h, and with kRounds gate and up as well, which backward reads in 8 bits. All have one block of values in each row and
// tile, so that no thread waits for another warp. A thread has two rows of a tile. `gate_up` is [R, 2K].
template <Activation kActivation, bool kRounds>
__global__ void __launch_bounds__(kForwardThreads)
    gated_forward8_kernel(const Bf16* __restrict__ gate_up, int64_t R, int64_t K, const AllTargets<3> targets) {
  constexpr int kArrays = kRounds ? 3 : 1, kScales = 2 * kArrays;
  const int across = static_cast<int>(threadIdx.x) % kAcross;
  const int64_t row = int64_t{blockIdx.x} * kForwardRows + static_cast<int>(threadIdx.x) / kAcross * 2,
                column = int64_t{blockIdx.y} * kTile + across * kElems;
  Pack<Bf16, kElems> arrays[3][2] = {};  // h, gate, up
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    if (row + i >= R || column >= K) continue;
    const Bf16* const from = gate_up + (row + i) * 2 * K + column;
    arrays[1][i] = load_pack<Bf16, kElems>(from), arrays[2][i] = load_pack<Bf16, kElems>(from + K);
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    float values[kElems];
#pragma unroll
    for (int j = 0; j < kElems; ++j) {
      values[j] = gate_of<kActivation, true>(arrays[1][i][j]).value * arrays[2][i][j];
    }
    arrays[0][i] = Pack<Bf16, kElems>::of(values);
  }
  // The threads of the two rows compute one scale each.
  const int own = across % kScales;
  uint32_t bits = 0;
#pragma unroll
  for (int a = 0; a < kArrays; ++a) {
    const uint32_t even = largest_of(arrays[a][0]), odd = largest_of(arrays[a][1]);
    const uint32_t both = largest_of_block(largest_of(__byte_perm(even, odd, 0x5410), __byte_perm(even, odd, 0x7632)));
    if (own / 2 == a) bits = both;
  }
  const auto [scale, inverse] = float8_scale(own % 2 ? bits & 0xffff0000u : bits << 16, Float8ScaleKind::quotient);
#pragma unroll
  for (int a = 0; a < kArrays; ++a) {
    const Float8Target& to = targets.of[a].rows;
    if (across / 2 == a && row + own % 2 < R) to.scales[blockIdx.y * to.scale_pitch + row + own % 2] = scale;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float of_row = __shfl_sync(0xffffffffu, inverse, 2 * a + i, kAcross);
      if (row + i < R && column < K) store_codes(arrays[a][i], of_row, row + i, column, to);
    }
  }
}

template <typename T>
__global__ void dequantize8_kernel(const Float8Target from, bool transposed, int64_t x_rows, int64_t x_columns,
                                   T* __restrict__ x) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= x_rows * x_columns) return;
  const int64_t row = i / x_columns, column = i % x_columns;
  const int64_t r = transposed ? column : row, k = transposed ? row : column;
  const float scale = from.squares ? from.scales[r / kTile * from.scale_pitch + k / kTile]
                                   : from.scales[k / kTile * from.scale_pitch + r];
  x[i] = from_acc<T>(value_of_code(from.values[r * from.pitch + k]) * scale);
}

// The rows of a matrix [R, 2K] of a gated layer: gate, or `up`.
Float8Target half_of_rows(const Float8Matrix& matrix, int64_t rows, int64_t channels, bool up) {
  Float8Target target = target_of(matrix, rows, 2 * channels);
  TESSERA_ASSERT(!target.squares && channels % kFloat8Block == 0);
  if (up && target.values) target.values += channels, target.scales += channels / kTile * rows;
  return target;
}
// The rows of a matrix [2K, R] that belong to gate, or to `up`.
Float8Target half_of_columns(const Float8Matrix& matrix, int64_t terms, int64_t channels, bool up) {
  Float8Target target = target_of(matrix, 2 * channels, terms);
  TESSERA_ASSERT(!target.squares);
  if (up && target.values) target.values += channels * terms, target.scales += channels;
  return target;
}

template <typename Source>
void launch(const Context& context, const Source& source, int64_t R, int64_t K,
            const AllTargets<Source::kArrays>& targets) {
  if (R == 0) return;
  const dim3 blocks(blocks_for(K, kTile), blocks_for(R, kTile));
  TESSERA_ASSERT(K % 16 == 0 && blocks.y < 65536);
  quantize_kernel<<<blocks, kThreads, 0, context.stream>>>(source, R, K, float8_terms(R), targets);
  check_launch("quantize_kernel");
}

}  // namespace

void CudaKernels::quantize(const Quantize& call) {
  using T = Bf16;
  TESSERA_ASSERT(call.x.dtype == DType::bf16);
  const int64_t R = call.x.shape[0], K = call.x.shape[1];
  const Targets targets{target_of(call.rows, R, K), target_of(call.columns, K, float8_terms(R)), call.kind_of_columns};
  const auto* const x = data_of<T>(call.x);
  const AppliedNorm& norm = call.norm;
  if (!norm.weight) return launch(context_, Plain<T>{x, K}, R, K, {{targets}});
  TESSERA_ASSERT(norm.stats.shape == (Shape{R, norm.bias ? 2 : 1}));
  const auto *const weight = data_of<T>(norm.weight), *const bias = data_of<T>(norm.bias);
  const auto* const stats = data_of<float>(norm.stats);
  if (norm.bias) return launch(context_, Normed<T, LayerRow>{x, weight, bias, stats, K}, R, K, {{targets}});
  launch(context_, Normed<T, RmsRow>{x, weight, bias, stats, K}, R, K, {{targets}});
}

void CudaKernels::gated_forward8(const GatedForward8& call) {
  TESSERA_ASSERT(call.gate_up.dtype == DType::bf16 && !call.h.squares);
  const int64_t R = call.gate_up.shape[0], K = call.gate_up.shape[1] / 2;
  const Targets h{target_of(call.h, R, K), {}}, gate{half_of_rows(call.rounded, R, K, false), {}},
      up{half_of_rows(call.rounded, R, K, true), {}};
  if (R == 0) return;
  const dim3 blocks(blocks_for(R, kForwardRows), blocks_for(K, kTile));
  TESSERA_ASSERT(K % 16 == 0 && blocks.y < 65536);
  with_gate(call.activation, [&](auto kind) {
    auto* const kernel = call.rounded ? gated_forward8_kernel<kind, true> : gated_forward8_kernel<kind, false>;
    kernel<<<blocks, kForwardThreads, 0, context_.stream>>>(data_of<Bf16>(call.gate_up), R, K, {{h, gate, up}});
  });
  check_launch("gated_forward8_kernel");
}

void CudaKernels::gated_backward8(const GatedBackward8& call) {
  using T = Bf16;
  TESSERA_ASSERT(call.d_h.dtype == DType::bf16 && !call.gate_up.squares);
  const int64_t R = call.d_h.shape[0], K = call.d_h.shape[1], padded = float8_terms(R);
  const auto half = [&](bool up) {
    return Targets{half_of_rows(call.d_gate_up_rows, R, K, up), half_of_columns(call.d_gate_up_columns, padded, K, up)};
  };
  const Targets h{{}, target_of(call.h_columns, K, padded)}, gate = half(false), up = half(true);
  const Float8Target gate_up = target_of(call.gate_up, R, 2 * K);
  with_gate(call.activation, [&](auto kind) {
    launch(context_, GatedBackwardSource<T, kind>{data_of<T>(call.d_h), gate_up, K}, R, K, {{h, gate, up}});
  });
}

void CudaKernels::dequantize8(const Float8Matrix& from, bool transposed, View x) {
  const int64_t R = from.values.shape[0], K = from.values.shape[1];
  TESSERA_ASSERT(x.shape[transposed ? 1 : 0] == R && x.shape[transposed ? 0 : 1] <= K);
  if (x.num_elems() == 0) return;
  const Float8Target source = target_of(from, R, K);
  with_float_type(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    dequantize8_kernel<T><<<blocks_for(x.num_elems(), 256), 256, 0, context_.stream>>>(source, transposed, x.shape[0],
                                                                                       x.shape[1], data_of<T>(x));
  });
  check_launch("dequantize8_kernel");
}

}  // namespace tessera::cuda
