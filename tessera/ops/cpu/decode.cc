// Attention of one new token per sequence over the cached keys and values: two matrix-vector products per head. Reading
// the cache limits the speed.
#include <cmath>
#include <limits>

#include "tessera/ops/cpu/cpu_kernels.h"
#include "tessera/ops/cpu/dispatch.h"
#include "tessera/ops/cpu/rows.h"

namespace tessera::cpu {

namespace {

constexpr int64_t kKeys = 512;  // keys per block; the running maximum is updated once per block

template <typename T>
void store(const T* qkv_row, const AttentionShape& shape, int64_t kv_head, T* key_row, T* value_row) {
  const HeadOffsets at(shape, kv_head * HeadOffsets::queries_per_kv_head(shape));
  const int64_t d = shape.head_dim;
  std::copy_n(qkv_row + at.k, d, key_row + kv_head * d);
  std::copy_n(qkv_row + at.v, d, value_row + kv_head * d);
}

// o [D] = softmax(q·kᵀ/√D + slope·position)·v over cached positions [begin, length), with a running maximum over blocks
// of kKeys keys. `keys` and `values` point to this head at position 0 of the sequence. `stride`: the number of
// elements from one position to the next.
template <typename T>
void decode_head(const T* q, const T* keys, const T* values, int64_t begin, int64_t length, int64_t stride,
                 int64_t head_dim, T slope, T* scores, T* o) {
  const T scale = T(1) / std::sqrt(static_cast<T>(head_dim));
  T maximum = -std::numeric_limits<T>::infinity(), sum = 0;
  std::fill_n(o, head_dim, T(0));
  for (int64_t k0 = begin; k0 < length; k0 += kKeys) {
    const int64_t count = std::min(kKeys, length - k0);
    T new_maximum = maximum;
    for (int64_t j = 0; j < count; ++j) {
      scores[j] = dot(q, keys + (k0 + j) * stride, head_dim) * scale + slope * static_cast<T>(k0 + j);
      new_maximum = std::max(new_maximum, scores[j]);
    }
    const T correction = exp(maximum - new_maximum);  // 0 for the first block
    sum = sum * correction + exp_in_place(scores, count, new_maximum);
    scale_row(o, head_dim, correction);
    for (int64_t j = 0; j < count; ++j) {
      const T p = scores[j];
      const T* value = values + (k0 + j) * stride;
#pragma omp simd
      for (int64_t d = 0; d < head_dim; ++d) o[d] += p * value[d];
    }
    maximum = new_maximum;
  }
  scale_row(o, head_dim, T(1) / sum);
}

}  // namespace

void CpuKernels::store_keys_values(const StoreKeysValues& call) {
  const AttentionShape& shape = call.shape;
  const int64_t width = shape.row_channels(), channels = shape.kv_channels();
  TESSERA_ASSERT(call.qkv.shape[1] == width && call.keys.shape[1] == channels && call.values.shape == call.keys.shape);
  TESSERA_ASSERT(call.starts.num_elems() == call.cache_starts.num_elems() + 1);
  const int32_t *start = call.starts.as<int32_t>(), *cache_start = call.cache_starts.as<int32_t>();
  with_float_type(call.qkv.dtype, [&](auto zero) {
    using T = decltype(zero);
    team_.for_each(call.cache_starts.num_elems(), [&](int64_t, int64_t b) {
      TESSERA_ASSERT(cache_start[b] >= 0 && cache_start[b] + start[b + 1] - start[b] <= call.keys.shape[0]);
      for (int64_t row = start[b]; row < start[b + 1]; ++row) {
        const int64_t to = (cache_start[b] + row - start[b]) * channels;
        for (int64_t kv_head = 0; kv_head < shape.kv_heads(); ++kv_head) {
          store(call.qkv.as<T>() + row * width, shape, kv_head, call.keys.as<T>() + to, call.values.as<T>() + to);
        }
      }
    });
  });
}

// A task handles one head of keys and values of one sequence, and all query heads that share this head.
void CpuKernels::attention_decode(const AttentionDecode& call) {
  const AttentionShape& shape = call.shape;
  const int64_t d = shape.head_dim, num_sequences = call.qkv.shape[0], num_kv_heads = shape.kv_heads();
  const int64_t width = shape.row_channels(), stride = shape.kv_channels();
  TESSERA_ASSERT(call.qkv.shape[1] == width && call.keys.shape[1] == stride && call.values.shape == call.keys.shape);
  TESSERA_ASSERT(call.o.shape == (Shape{num_sequences, shape.channels()}) && call.lengths.num_elems() == num_sequences);
  TESSERA_ASSERT(call.cache_starts.num_elems() == num_sequences);
  const int64_t group = HeadOffsets::queries_per_kv_head(shape);
  const int32_t *length = call.lengths.as<int32_t>(), *cache_start = call.cache_starts.as<int32_t>();
  with_float_type(call.qkv.dtype, [&](auto zero) {
    using T = decltype(zero);
    team_.for_each(num_sequences * num_kv_heads, [&](int64_t thread, int64_t task) {
      const int64_t b = task / num_kv_heads, kv_head = task % num_kv_heads;
      const T* qkv_row = call.qkv.as<T>() + b * width;
      const int64_t first = cache_start[b], position = length[b];
      TESSERA_ASSERT(first >= 0 && position >= 0 && first + position < call.keys.shape[0]);
      store(qkv_row, shape, kv_head, call.keys.as<T>() + (first + position) * stride,
            call.values.as<T>() + (first + position) * stride);
      for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
        decode_head(qkv_row + HeadOffsets(shape, head).q, call.keys.as<T>() + first * stride + kv_head * d,
                    call.values.as<T>() + first * stride + kv_head * d, first_visible(position, shape.window),
                    position + 1, stride, d, static_cast<T>(alibi_slope(shape, head)), team_.scratch<T>(thread),
                    call.o.as<T>() + b * shape.channels() + head * d);
      }
    });
  });
}

}  // namespace tessera::cpu
