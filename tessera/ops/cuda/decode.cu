// Kernels for generation. store_kernel copies the keys and values of given tokens to the cache. decode_kernel handles
// one new token per sequence: it stores the token's key and value, and computes the token's attention. Reading the
// cache limits the speed of decode_kernel. To read with many blocks of threads at the same time, decode_kernel divides
// the keys of a sequence into splits. Each block handles one split of one sequence, for some of the heads. If a
// sequence has several splits, combine_kernel combines their results.
#include <algorithm>
#include <limits>

#include "tessera/ops/cuda/attention_shapes.cuh"
#include "tessera/ops/cuda/cuda_kernels.h"

namespace tessera::cuda {
namespace {

constexpr int kWarps = 4, kThreads = kWarps * kWarp;
constexpr int kAhead = 4;  // keys that are loaded before the first of them is used
// Minimum number of keys per split, as an average over all sequences, if the cache is full and there is no window.
constexpr int kMinKeys = 32;
constexpr int kMaxSplits = 64;  // maximum number of splits per sequence

template <typename T>
struct Cache {
  T *keys, *values;                 // [num_rows, K·D]
  const int32_t *starts, *lengths;  // [B] first row and number of cached tokens; store_kernel: lengths is null
  int64_t num_rows;
};

// Each block of threads copies the keys and values of all heads in one row of qkv to the cache.
template <typename T>
__global__ void store_kernel(const T* __restrict__ qkv, Heads heads, Cache<T> cache) {
  const RowBlock block = find_block(heads.starts, heads.num_sequences, 1, static_cast<int>(blockIdx.x));
  if (!block.found) return;
  // Sets b to the index of the sequence that contains the row. Empty sequences may start at the same row, so the end of
  // the sequence must match, too.
  int b = 0;
  for (int first = 0; first < heads.num_sequences; first += kWarp) {
    const int candidate = first + static_cast<int>(threadIdx.x) % kWarp;
    const bool here = candidate < heads.num_sequences && heads.starts[candidate] == block.begin &&
                      heads.starts[candidate + 1] == block.begin + block.length;
    const unsigned holders = __ballot_sync(kAllLanes, here);
    if (holders) b = first + __ffs(static_cast<int>(holders)) - 1;
  }
  const int64_t to = cache.starts[b] + block.index;
  if (to < 0 || to >= cache.num_rows) __trap();
  const int64_t row = block.begin + block.index;
  const int channels = heads.num_kv_heads * heads.head_dim;
  for (int c = static_cast<int>(threadIdx.x); c < channels; c += kThreads) {
    cache.keys[to * channels + c] = heads.key(qkv, row, c / heads.head_dim)[c % heads.head_dim];
    cache.values[to * channels + c] = heads.value(qkv, row, c / heads.head_dim)[c % heads.head_dim];
  }
}

// The result of attention over some keys, before the division by `sum`. `maximum` is the greatest score, sum = Σ
// exp(score − maximum), and o = Σ exp(score − maximum)·value. A lane has only its own elements of o.
template <typename A, int kElems>
struct Partial {
  A maximum, sum, o[kElems];

  __device__ void clear() {
    maximum = -std::numeric_limits<A>::infinity();
    sum = 0;
#pragma unroll
    for (int i = 0; i < kElems; ++i) o[i] = 0;
  }
  // Sets `maximum` to `most` and rescales sum and o. `most` must not be lower than `maximum`.
  __device__ void scale_to(A most) {
    const A correction = exp(maximum - most);
    maximum = most;
    sum *= correction;
#pragma unroll
    for (int i = 0; i < kElems; ++i) o[i] *= correction;
  }
};

// A group of kLanes lanes handles up to kMembers query heads that share a head of keys and values. The group reads the
// cache once for all these query heads. A head is divided into packs of N elements. Lane i has packs i, i + kLanes, ….
// The groups of a block handle neighbouring heads, so together they read contiguous pieces of the cache's rows. With
// one split, the kernel writes the result to `o`. With several splits, it writes the Partial of each split to
// `partials`: first o, then maximum and sum.
template <typename T, int N, int kLanes, int kPacks, int kMembers>
__global__ void __launch_bounds__(kThreads)
    decode_kernel(const T* __restrict__ qkv, Heads heads, Cache<T> cache, Acc<T> scale, T* __restrict__ o,
                  Acc<T>* __restrict__ partials /*[B, H, splits, D + 2]*/) {
  using A = Acc<T>;
  constexpr int kGroups = kThreads / kLanes, kElems = N * kPacks;
  const int split = static_cast<int>(blockIdx.x), num_splits = static_cast<int>(gridDim.x),
            b = static_cast<int>(blockIdx.z), head_dim = heads.head_dim;
  const int lane = static_cast<int>(threadIdx.x) % kLanes, parts = (heads.group + kMembers - 1) / kMembers,
            part = static_cast<int>(blockIdx.y) * kGroups + static_cast<int>(threadIdx.x) / kLanes;
  const bool has_head = part < heads.num_kv_heads * parts;  // threads without a head still take part in shuffles
  const int kv_head = has_head ? part / parts : 0, first_member = has_head ? part % parts * kMembers : 0,
            head = kv_head * heads.group + first_member, members = min(kMembers, heads.group - first_member);
  const int last = cache.lengths[b];  // the new token's position
  const int64_t first_row = cache.starts[b];
  if (last < 0 || first_row < 0 || first_row + last >= cache.num_rows) __trap();
  const int64_t channels = heads.num_kv_heads * head_dim, at = first_row * channels + kv_head * head_dim;
  const T *const new_key = heads.key(qkv, b, kv_head), *const new_value = heads.value(qkv, b, kv_head);
  const int first_key = max(0, heads.first_key(last)), count = last + 1 - first_key;
  const int begin = first_key + static_cast<int>(int64_t{count} * split / num_splits),
            end = first_key + static_cast<int>(int64_t{count} * (split + 1) / num_splits);

  A q[kMembers][kElems], slopes[kMembers];
  Partial<A, kElems> mine[kMembers];
#pragma unroll
  for (int m = 0; m < kMembers; ++m) {
    const int own = head + min(m, members - 1);
    const T* const query = heads.query(qkv, b, own);
    slopes[m] = static_cast<A>(heads.slope(own));
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      const int d = (lane + p * kLanes) * N;
#pragma unroll
      for (int j = 0; j < N; ++j) q[m][p * N + j] = d + j < head_dim ? to_acc(query[d + j]) * scale : A(0);
    }
    mine[m].clear();
  }
  for (int k0 = begin; k0 < end; k0 += kAhead) {
    Pack<T, N> keys[kAhead][kPacks], values[kAhead][kPacks];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int key = k0 + i;
      const int64_t from = at + static_cast<int64_t>(key) * channels;
      const bool is_new = key == last;
#pragma unroll
      for (int p = 0; p < kPacks; ++p) {
        const int d = (lane + p * kLanes) * N;
        keys[i][p] = values[i][p] = {};
        if (key >= end || d >= head_dim || !has_head) continue;
        keys[i][p] = load_pack<T, N>(is_new ? new_key + d : cache.keys + from + d);
        values[i][p] = load_pack<T, N>(is_new ? new_value + d : cache.values + from + d);
        if (is_new && first_member == 0) {
          store_pack(cache.keys + from + d, keys[i][p]);
          store_pack(cache.values + from + d, values[i][p]);
        }
      }
    }
#pragma unroll
    for (int m = 0; m < kMembers; ++m) {
      A scores[kAhead], most = mine[m].maximum;
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        A score = 0;
#pragma unroll
        for (int e = 0; e < kElems; ++e) score += q[m][e] * keys[i][e / N][e % N];
#pragma unroll
        for (int offset = kLanes / 2; offset > 0; offset /= 2) score += __shfl_xor_sync(kAllLanes, score, offset);
        const int key = k0 + i;
        scores[i] = key < end ? score + slopes[m] * static_cast<A>(key) : -std::numeric_limits<A>::infinity();
        most = max(most, scores[i]);
      }
      mine[m].scale_to(most);  // `most` is finite, because key k0 has a score
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const A p = exp(scores[i] - most);
        mine[m].sum += p;
#pragma unroll
        for (int e = 0; e < kElems; ++e) mine[m].o[e] += p * values[i][e / N][e % N];
      }
    }
  }

  if (!has_head) return;
#pragma unroll
  for (int m = 0; m < kMembers; ++m) {
    if (m >= members) continue;
    const int64_t result = static_cast<int64_t>(b) * heads.num_heads + head + m;
    A* const partial = partials + (result * num_splits + split) * (head_dim + 2);
#pragma unroll
    for (int e = 0; e < kElems; ++e) {
      const int d = (lane + e / N * kLanes) * N + e % N;
      if (d >= head_dim) continue;
      if (num_splits == 1) {
        o[result * head_dim + d] = from_acc<T>(mine[m].o[e] / mine[m].sum);
      } else {
        partial[d] = mine[m].o[e];
      }
    }
    if (num_splits > 1 && lane == 0) {
      partial[head_dim] = mine[m].maximum;
      partial[head_dim + 1] = mine[m].sum;
    }
  }
}

// One block per sequence and query head. It combines the partial results of the splits, in a fixed order, into o.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    combine_kernel(const Acc<T>* __restrict__ partials, int num_splits, int head_dim, T* __restrict__ o) {
  using A = Acc<T>;
  __shared__ A weights[kMaxSplits];
  const int thread = static_cast<int>(threadIdx.x), part = head_dim + 2;
  const A* const parts = partials + static_cast<int64_t>(blockIdx.x) * num_splits * part;
  if (thread < kWarp) {
    A most = -std::numeric_limits<A>::infinity(), sum = 0;
    for (int s = thread; s < num_splits; s += kWarp) most = max(most, parts[s * part + head_dim]);
    most = warp_reduce(most, Max());
    for (int s = thread; s < num_splits; s += kWarp) {
      weights[s] = exp(parts[s * part + head_dim] - most);
      sum += weights[s] * parts[s * part + head_dim + 1];
    }
    sum = warp_reduce(sum, Sum());
    __syncwarp();
    for (int s = thread; s < num_splits; s += kWarp) weights[s] /= sum;
  }
  __syncthreads();
  for (int d = thread; d < head_dim; d += kThreads) {
    A total = 0;
#pragma unroll 8
    for (int s = 0; s < num_splits; ++s) total += parts[s * part + d] * weights[s];
    o[static_cast<int64_t>(blockIdx.x) * head_dim + d] = from_acc<T>(total);
  }
}

// Calls body(N, lanes, packs) with constants: the elements of a pack, the lanes of a group, and the packs of a head per
// lane. If a head consists of complete packs of 16 bytes, at most one for each lane of a warp, a group has the fewest
// lanes that suffice: 8 (only 16-bit types), 16 (not f64) or 32. For other heads, a group is a warp, and packs have one
// element.
template <typename T, typename Body>
void with_group(int head_dim, Body&& body) {
  constexpr int N = kPackOf<T>;
  using std::integral_constant;
  const auto narrow = [&](auto lanes) { body(integral_constant<int, N>(), lanes, integral_constant<int, 1>()); };
  if (head_dim % N == 0) {
    if constexpr (sizeof(T) == 2) {
      if (head_dim <= 8 * N) return narrow(integral_constant<int, 8>());
    }
    if constexpr (sizeof(T) <= 4) {
      if (head_dim <= 16 * N) return narrow(integral_constant<int, 16>());
    }
    if (head_dim <= 32 * N) return narrow(integral_constant<int, 32>());
  }
  body(integral_constant<int, 1>(), integral_constant<int, 32>(), integral_constant<int, kMaxHeadDim / 32>());
}

// Calls body(members) with a constant: the maximum number of query heads that a group of lanes handles together.
// `group` is the number of query heads that share a head of keys and values. If a lane has several packs of a head, the
// registers suffice for only one query head.
template <int kPacks, typename Body>
void with_members(int group, Body&& body) {
  using std::integral_constant;
  if constexpr (kPacks == 1) {
    if (group > 4) return body(integral_constant<int, 8>());
    if (group > 2) return body(integral_constant<int, 4>());
    if (group > 1) return body(integral_constant<int, 2>());
  }
  body(integral_constant<int, 1>());
}

}  // namespace

void CudaKernels::store_keys_values(const StoreKeysValues& call) {
  const Heads heads = Heads::of(call.shape, call.starts);
  TESSERA_ASSERT(call.qkv.shape[1] == call.shape.row_channels() && call.keys.shape[1] == call.shape.kv_channels());
  TESSERA_ASSERT(call.values.shape == call.keys.shape);
  TESSERA_ASSERT(call.starts.num_elems() == call.cache_starts.num_elems() + 1);
  if (call.qkv.shape[0] == 0) return;
  with_float_type(call.qkv.dtype, [&](auto zero) {
    using T = decltype(zero);
    const Cache<T> cache{data_of<T>(call.keys), data_of<T>(call.values), call.cache_starts.as<int32_t>(), nullptr,
                         call.keys.shape[0]};
    store_kernel<T><<<static_cast<unsigned>(call.qkv.shape[0]), kThreads, 0, context_.stream>>>(data_of<T>(call.qkv),
                                                                                                heads, cache);
  });
  check_launch("store_kernel");
}

void CudaKernels::attention_decode(const AttentionDecode& call) {
  const Heads heads = Heads::of(call.shape, {});
  const int64_t num_sequences = call.qkv.shape[0], d = heads.head_dim, num_heads = heads.num_heads;
  TESSERA_ASSERT(call.qkv.shape[1] == call.shape.row_channels() && call.keys.shape[1] == call.shape.kv_channels());
  TESSERA_ASSERT(call.values.shape == call.keys.shape);
  TESSERA_ASSERT(call.o.shape == (Shape{num_sequences, heads.channels}) && call.lengths.num_elems() == num_sequences);
  TESSERA_ASSERT(call.cache_starts.num_elems() == num_sequences);
  if (num_sequences == 0) return;
  with_float_type(call.qkv.dtype, [&](auto zero) {
    using T = decltype(zero);
    using A = Acc<T>;
    const Cache<T> cache{data_of<T>(call.keys), data_of<T>(call.values), call.cache_starts.as<int32_t>(),
                         call.lengths.as<int32_t>(), call.keys.shape[0]};
    const A scale = static_cast<A>(1 / std::sqrt(static_cast<double>(d)));
    int splits = 1;
    with_group<T>(heads.head_dim, [&](auto n, auto lanes, auto packs) {
      with_members<packs>(heads.group, [&](auto members) {
        const int64_t parts = int64_t{heads.num_kv_heads} * ((heads.group + members - 1) / members);
        const int64_t across = (parts * lanes + kThreads - 1) / kThreads;
        // The number of splits is the lowest of three values, but at least 1 and at most kMaxSplits. `wanted` gives
        // each multiprocessor about 8 blocks, so that it always reads the cache. `room` is the number of splits whose
        // results fit into the scratch. `useful` is the largest number of splits that kMinKeys permits.
        const int64_t wanted = 8 * context_.num_multiprocessors / (num_sequences * across),
                      room = Context::scratch_elems<A>() / (num_sequences * num_heads * (d + 2));
        const int64_t useful = call.keys.shape[0] / num_sequences / kMinKeys;
        splits = static_cast<int>(std::clamp<int64_t>(std::min({wanted, room, useful}), 1, kMaxSplits));
        const dim3 grid(static_cast<unsigned>(splits), static_cast<unsigned>(across),
                        static_cast<unsigned>(num_sequences));
        decode_kernel<T, n, lanes, packs, members><<<grid, kThreads, 0, context_.stream>>>(
            data_of<T>(call.qkv), heads, cache, scale, data_of<T>(call.o), context_.scratch_of<A>());
      });
    });
    check_launch("decode_kernel");
    if (splits == 1) return;
    combine_kernel<T><<<static_cast<unsigned>(num_sequences * num_heads), kThreads, 0, context_.stream>>>(
        context_.scratch_of<A>(), splits, heads.head_dim, data_of<T>(call.o));
    check_launch("combine_kernel");
  });
}

}  // namespace tessera::cuda
