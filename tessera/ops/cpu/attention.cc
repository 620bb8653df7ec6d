// Causal attention of unpadded sequences, in blocks whose scores stay in the L2 cache. Source: Dao, "FlashAttention-2",
// 2023, algorithms 1 (forward) and 2 (backward).
//
// Letters: i is the row of a query in its block, j the row of a key in its block. q0 and k0 are the positions in the
// sequence at which these blocks begin. S are scores, P probabilities before dropout. D, H, C (= H·D) and W are the
// letters of ops/kernels.h.
#include <cmath>
#include <limits>

#include "tessera/base/math.h"
#include "tessera/ops/cpu/cpu_kernels.h"
#include "tessera/ops/cpu/dispatch.h"
#include "tessera/ops/cpu/mask.h"
#include "tessera/ops/cpu/product.h"
#include "tessera/ops/cpu/rows.h"

namespace tessera::cpu {

namespace {

constexpr int64_t kLanes = 16;                 // a multiple of the number of f32 or f64 in a vector register
constexpr int64_t kQueries = 64;               // rows of a block of scores
constexpr int64_t kKeys = 512;                 // columns of a block of scores, at most
constexpr int64_t kGroup = 512;                // queries that share a packed block of keys
constexpr int64_t kStride = kPackedRowStride;  // elements from one row of scores to the next
constexpr int64_t kPackedElems = kKeys * 256;  // elements of a packed block of keys or values, at most
static_assert(kKeys <= kMaxPackedDepth && kKeys % kQueries == 0 && kGroup % kQueries == 0 && kKeys + kLanes <= kStride);

// The number of keys of a block: at most kKeys, fewer for wide heads. It is a multiple of kQueries, so each block of
// keys begins where a block of queries begins. A block of queries is multiplied only with blocks of keys that do not
// begin later. Without a window, every query of the block therefore sees at least one key in each of these blocks of
// keys.
int64_t keys_of_block(int64_t head_dim) {
  return std::min(kKeys, kPackedElems / round_up(head_dim, kColumnUnit) / kQueries * kQueries);
}

// Scratch of a thread: a block of probabilities, a block of gradients of scores, a row of dropout factors, up to three
// packed blocks of keys or values, and the scratch of the products.
template <typename T>
struct Scratch {
  T *p, *ds, *factors, *packed[3], *product;
  explicit Scratch(T* at) : p(at), ds(p + kQueries * kStride), factors(ds + kQueries * kStride) {
    for (int i = 0; i < 3; ++i) packed[i] = factors + kStride + i * kPackedRoom;
    product = packed[2] + kPackedRoom;
  }
  static constexpr int64_t kPackedRoom = packed_elems<T>(kPackedElems / kColumnUnit, kColumnUnit);
  static constexpr int64_t kElems = (2 * kQueries + 1) * kStride + 3 * kPackedRoom + kProductScratchElems;
  static_assert(kElems <= Team::scratch_elems<T>());
};

// What all blocks of one head in one sequence share. Pointers point to the sequence's first row.
template <typename T>
struct Head {
  const T *q, *k, *v;
  int64_t stride;  // of q, k and v: W
  int64_t head_dim;
  int64_t index;           // of the head
  int64_t window;          // a query sees at most this many keys; 0: no limit
  T scale, slope;          // 1/√D, and the head's slope of ALiBi
  const Dropout* dropout;  // null for none
  const int64_t* row_ids;

  Head(const T* qkv_row, const AttentionShape& shape, int64_t head, const Dropout& all_dropout, int64_t first_row,
       int64_t length)
      : stride(shape.row_channels()),
        head_dim(shape.head_dim),
        index(head),
        window(shape.window),
        scale(T(1) / std::sqrt(static_cast<T>(shape.head_dim))),
        slope(static_cast<T>(alibi_slope(shape, head))),
        dropout(all_dropout.rate > 0 ? &all_dropout : nullptr),
        row_ids(dropout ? all_dropout.row_ids.as<int64_t>() + first_row : nullptr) {
    TESSERA_ASSERT(!dropout || length <= kMaxDropoutKeys);
    const HeadOffsets at(shape, head);
    q = qkv_row + at.q;
    k = qkv_row + at.k;
    v = qkv_row + at.v;
  }

  // Packs a block of keys or values, or its transpose, as the right factor of products with several blocks of queries.
  Packed<T> pack_rows(const T* rows, int64_t k0, int64_t num_keys, T* room) const {
    return pack(Transpose::no, num_keys, head_dim, rows + k0 * stride, stride, room);
  }
  Packed<T> pack_transposed(const T* rows, int64_t k0, int64_t num_keys, T* room) const {
    return pack(Transpose::yes, head_dim, num_keys, rows + k0 * stride, stride, room);
  }
  // s [num_queries, num_keys] (row stride kStride) = q·kᵀ.
  void products(int64_t q0, int64_t num_queries, int64_t num_keys, const Packed<T>& keys, T* s, T* scratch) const {
    multiply_packed(num_queries, num_keys, head_dim, q + q0 * stride, stride, keys, Result::set, s, kStride, scratch);
  }
  // Replaces q·kᵀ by q·kᵀ/√D + slope·position in a row of scores for `count` keys from k0 on, and returns the maximum
  // of these scores. `count` is a multiple of kLanes. The columns of hidden keys already hold −∞.
  T scale_and_bias(int64_t k0, int64_t count, T* s) const {
    const T scale_here = scale, slope_here = slope;
    const auto first = static_cast<int32_t>(k0);
    T most = -std::numeric_limits<T>::infinity();
#pragma omp simd reduction(max : most)
    for (int32_t j = 0; j < static_cast<int32_t>(count); ++j) {
      s[j] = s[j] * scale_here + slope_here * static_cast<T>(first + j);
      most = most < s[j] ? s[j] : most;
    }
    return most;
  }
  // Replaces p for the keys from k0 on by dropout(p).
  void drop(int64_t query, int64_t k0, int64_t count, T* p) const {
    if (!dropout) return;
    apply_dropout(*dropout, row_ids[query], attention_dropout_column(index, k0), count, p);
  }
};

// The keys of a block that a query sees: columns [begin, end). With a window, the query may see none of them: then
// begin >= end.
struct Visible {
  int64_t begin, end;
  Visible(int64_t query, int64_t window, int64_t k0, int64_t num_keys)
      : begin(std::clamp(first_visible(query, window) - k0, int64_t{0}, num_keys)),
        end(std::min(query + 1 - k0, num_keys)) {}
};

// Returns the number of columns to compute. It is a multiple of kLanes, so no element is left for a scalar loop. In
// these columns, sets the scores of all keys outside `seen` to −∞.
template <typename T>
int64_t hide(T* s, const Visible& seen) {
  const int64_t whole = round_up(seen.end, kLanes);
  if (seen.begin > 0) std::fill(s, s + seen.begin, -std::numeric_limits<T>::infinity());
  std::fill(s + seen.end, s + whole, -std::numeric_limits<T>::infinity());
  return whole;
}

// The start of the first block with keys that a query sees.
int64_t first_block(int64_t query, int64_t window, int64_t block_keys) {
  return first_visible(query, window) / block_keys * block_keys;
}

// The end of the range of queries that see a key before `block_end`. It is at most `end`.
int64_t end_of_queries(int64_t block_end, int64_t window, int64_t end) {
  return window > 0 ? std::min(end, block_end - 1 + window) : end;
}

// Sets columns [begin, end) of a row to zero.
template <typename T>
void clear(T* row, int64_t begin, int64_t end) {
  if (begin < end) std::fill(row + begin, row + end, T(0));
}

// Running maximum of a query's scores, and running sum of their exponentials.
template <typename T>
struct Softmax {
  T maximum, sum;
};

// s holds q·kᵀ of a block. Computes the scores S, and replaces s by dropout(exp(S − maximum)), where `maximum` is each
// query's running maximum. o holds the sums of dropout(exp(S − maximum))·v over the keys of earlier blocks. The call
// rescales these sums to the new maximum. is_first: this is the first block with a key that query q0 sees.
template <typename T>
void softmax_block(const Head<T>& head, int64_t q0, int64_t num_queries, int64_t k0, int64_t num_keys, bool is_first,
                   T* s, Softmax<T>* softmax, T* o, int64_t o_stride) {
  for (int64_t i = 0; i < num_queries; ++i) {
    T* row = s + i * kStride;
    const Visible seen(q0 + i, head.window, k0, num_keys);
    if (seen.begin >= seen.end) {  // the block is before the window of this query
      if (is_first) softmax[i] = {-std::numeric_limits<T>::infinity(), T(0)};
      clear(row, 0, num_keys);
      continue;
    }
    const int64_t computed = hide(row, seen);
    const T row_maximum = head.scale_and_bias(k0, computed, row);
    const T maximum = is_first ? row_maximum : std::max(softmax[i].maximum, row_maximum);
    const T row_sum = exp_in_place(row, computed, maximum);
    if (is_first) {
      softmax[i].sum = row_sum;
    } else {
      const T correction = exp(softmax[i].maximum - maximum);
      softmax[i].sum = softmax[i].sum * correction + row_sum;
      scale_row(o + i * o_stride, head.head_dim, correction);
    }
    softmax[i].maximum = maximum;
    head.drop(q0 + i, k0, computed, row);
    clear(row, computed, num_keys);
  }
}

// Computes o for queries [begin, end), at most kGroup queries. o points to this head in the sequence's first row, and
// its row stride is C. log_sum_exp points to the same head and row, with row stride H, or is null.
template <typename T>
void forward_group(const Head<T>& head, int64_t begin, int64_t end, const Scratch<T>& scratch, T* o, int64_t o_stride,
                   T* log_sum_exp, int64_t num_heads) {
  Softmax<T> softmax[kGroup];
  const int64_t block_keys = keys_of_block(head.head_dim);
  for (int64_t k0 = first_block(begin, head.window, block_keys); k0 < end; k0 += block_keys) {
    const int64_t block_end = std::min(end, k0 + block_keys);
    const auto keys = head.pack_transposed(head.k, k0, block_end - k0, scratch.packed[0]);
    const auto values = head.pack_rows(head.v, k0, block_end - k0, scratch.packed[1]);
    const int64_t end_here = end_of_queries(block_end, head.window, end);
    for (int64_t q0 = std::max(begin, k0); q0 < end_here; q0 += kQueries) {
      const int64_t num_queries = std::min(kQueries, end - q0), num_keys = std::min(block_end, q0 + num_queries) - k0;
      const bool is_first = k0 == first_block(q0, head.window, block_keys);
      head.products(q0, num_queries, num_keys, keys, scratch.p, scratch.product);
      softmax_block(head, q0, num_queries, k0, num_keys, is_first, scratch.p, softmax + q0 - begin, o + q0 * o_stride,
                    o_stride);
      multiply_packed(num_queries, head.head_dim, num_keys, scratch.p, kStride, values,
                      is_first ? Result::set : Result::add, o + q0 * o_stride, o_stride, scratch.product);
    }
  }
  for (int64_t q = begin; q < end; ++q) {
    const auto [maximum, sum] = softmax[q - begin];
    scale_row(o + q * o_stride, head.head_dim, T(1) / sum);
    if (log_sum_exp) log_sum_exp[q * num_heads] = maximum + std::log(sum);
  }
}

// The arrays of a head's backward pass, from the sequence's first row on.
template <typename T>
struct HeadGradients {
  const T *o, *d_o;      // stride C
  const T* log_sum_exp;  // stride H
  T *d_q, *d_k, *d_v;    // stride W
  int64_t channels, num_heads;
  bool first_of_group;  // no other query head has written d_k and d_v yet
};

// Keys and values of a block, packed for its products.
template <typename T>
struct PackedBlock {
  Packed<T> keys_transposed, values_transposed, keys;
};

// P = exp(S − log_sum_exp); dP = d_o·vᵀ; dS = P∘(dropout(dP) − Σ(d_o∘o))/√D. Writes dS to ds and dropout(P) to p.
template <typename T>
void score_gradients(const Head<T>& head, const HeadGradients<T>& at, int64_t q0, int64_t num_queries, int64_t k0,
                     int64_t num_keys, const PackedBlock<T>& block, const Scratch<T>& scratch) {
  T *p = scratch.p, *ds = scratch.ds, *factors = scratch.factors;
  head.products(q0, num_queries, num_keys, block.keys_transposed, p, scratch.product);
  multiply_packed(num_queries, num_keys, head.head_dim, at.d_o + q0 * at.channels, at.channels, block.values_transposed,
                  Result::set, ds, kStride, scratch.product);
  for (int64_t i = 0; i < num_queries; ++i) {
    const int64_t query = q0 + i;
    T *p_row = p + i * kStride, *ds_row = ds + i * kStride;
    const int64_t computed = hide(p_row, Visible(query, head.window, k0, num_keys));
    head.scale_and_bias(k0, computed, p_row);
    exp_in_place(p_row, computed, at.log_sum_exp[query * at.num_heads]);
    const T delta = dot(at.d_o + query * at.channels, at.o + query * at.channels, head.head_dim);
    if (head.dropout) {
      std::fill(factors, factors + computed, T(1));
      head.drop(query, k0, computed, factors);
#pragma omp simd
      for (int64_t j = 0; j < computed; ++j) {
        ds_row[j] = p_row[j] * (factors[j] * ds_row[j] - delta) * head.scale;
        p_row[j] *= factors[j];
      }
    } else {
#pragma omp simd
      for (int64_t j = 0; j < computed; ++j) ds_row[j] = p_row[j] * (ds_row[j] - delta) * head.scale;
    }
    clear(p_row, computed, num_keys);
    clear(ds_row, computed, num_keys);
  }
}

enum class Gradients { all, of_keys_and_values, of_queries };

// d_v += dropout(P)ᵀ·d_o; d_q += dS·k; d_k += dSᵀ·q, for the block of keys from k0 on, and the queries of [begin, end)
// that see these keys. The first block that contributes to a gradient overwrites the gradient.
template <typename T>
void backward_block(const Head<T>& head, const HeadGradients<T>& at, int64_t length, int64_t k0, int64_t begin,
                    int64_t end, Gradients wanted, const Scratch<T>& scratch) {
  const int64_t d = head.head_dim, stride = head.stride, block_keys = keys_of_block(d),
                block_end = std::min(length, k0 + block_keys), keys = block_end - k0;
  PackedBlock<T> block{head.pack_transposed(head.k, k0, keys, scratch.packed[0]),
                       head.pack_transposed(head.v, k0, keys, scratch.packed[1]),
                       {}};
  if (wanted != Gradients::of_keys_and_values) block.keys = head.pack_rows(head.k, k0, keys, scratch.packed[2]);
  const int64_t queries_end = std::min(end, end_of_queries(block_end, head.window, length));
  for (int64_t q0 = std::max(begin, k0); q0 < queries_end; q0 += kQueries) {
    const int64_t num_queries = std::min(kQueries, length - q0), num_keys = std::min(block_end, q0 + num_queries) - k0;
    score_gradients(head, at, q0, num_queries, k0, num_keys, block, scratch);
    if (wanted != Gradients::of_queries) {
      // No earlier block of queries has added to d_k and d_v of the positions from q0 on. If no earlier query head has
      // added to them either (first_of_group), the products overwrite d_k and d_v there. Otherwise, and at positions
      // before q0, the products are added.
      const int64_t old_keys = at.first_of_group ? std::min(num_keys, q0 - k0) : num_keys;
      auto add = [&](const T* left, const T* right, int64_t right_stride, T* result) {
        auto part = [&](int64_t from, int64_t to, Result how) {
          if (from == to) return;
          multiply(Factors<T>{Transpose::yes, Transpose::no, to - from, d, num_queries, left + from, kStride, right,
                              right_stride},
                   how, result + (k0 + from) * stride, stride, scratch.product);
        };
        part(0, old_keys, Result::add);
        part(old_keys, num_keys, Result::set);
      };
      add(scratch.p, at.d_o + q0 * at.channels, at.channels, at.d_v);
      add(scratch.ds, head.q + q0 * stride, stride, at.d_k);
    }
    if (wanted != Gradients::of_keys_and_values) {
      const bool is_first = k0 == first_block(q0, head.window, block_keys);
      multiply_packed(num_queries, d, num_keys, scratch.ds, kStride, block.keys, is_first ? Result::set : Result::add,
                      at.d_q + q0 * stride, stride, scratch.product);
    }
  }
}

// Whether attention_backward() should divide the work of each head. With divided work, it computes S and dP twice: 7
// products instead of 5 for each block. Returns true if one undivided head of keys and values in the longest sequence
// takes longer than a thread's share of all divided work.
bool is_longest_too_long(View starts, int64_t kv_heads, int64_t window, int num_threads) {
  double longest = 0, sum = 0;
  const auto* const at = starts.as<int32_t>();
  for (int64_t b = 0; b + 1 < starts.num_elems(); ++b) {
    const auto length = static_cast<double>(at[b + 1] - at[b]);
    const double work = length * (window > 0 ? std::min(length, 2.0 * static_cast<double>(window)) : length);
    longest = std::max(longest, work);
    sum += work;
  }
  return 5 * longest * num_threads > 7 * sum * static_cast<double>(kv_heads);
}

void check(View qkv, const AttentionShape& shape, const Dropout& dropout) {
  TESSERA_ASSERT(qkv.shape[1] == shape.row_channels() && shape.head_dim <= kMaxHeadDim);
  TESSERA_ASSERT(shape.num_heads % shape.kv_heads() == 0);
  TESSERA_ASSERT(shape.layout == QkvLayout::blocked || shape.kv_heads() == shape.num_heads);
  TESSERA_ASSERT(!shape.alibi_slopes || shape.alibi_slopes.num_elems() == shape.num_heads);
  TESSERA_ASSERT(!(dropout.rate > 0) ||
                 (dropout.row_ids.num_elems() == qkv.shape[0] && shape.num_heads <= kMaxDropoutHeads));
}

}  // namespace

void CpuKernels::attention_forward(const AttentionForward& call) {
  const AttentionShape& shape = call.shape;
  check(call.qkv, shape, call.dropout);
  const int64_t channels = shape.channels(), num_heads = shape.num_heads;
  TESSERA_ASSERT(call.o.shape == (Shape{call.qkv.shape[0], channels}));
  TESSERA_ASSERT(!call.log_sum_exp || call.log_sum_exp.shape == (Shape{call.qkv.shape[0], num_heads}));
  attention_tasks_.plan(call.starts, call.qkv.shape[0], num_heads, kGroup);
  with_float_type(call.qkv.dtype, [&](auto zero) {
    using T = decltype(zero);
    team_.for_each(attention_tasks_.count(), [&](int64_t thread, int64_t index) {
      const auto task = attention_tasks_[index];
      const Head<T> head(call.qkv.as<T>() + task.begin * shape.row_channels(), shape, task.head, call.dropout,
                         task.begin, task.length);
      const int64_t begin = task.block * kGroup;
      forward_group(head, begin, std::min(task.length, begin + kGroup), Scratch<T>(team_.scratch<T>(thread)),
                    call.o.as<T>() + task.begin * channels + task.head * shape.head_dim, channels,
                    call.log_sum_exp ? call.log_sum_exp.as<T>() + task.begin * num_heads + task.head : nullptr,
                    num_heads);
    });
  });
}

// A task owns a head of keys and values in a sequence, and all query heads that share it. No two threads write the same
// gradient, and the sums over these query heads have a fixed order. If the longest sequence would keep some threads
// waiting, there are two rounds of smaller tasks. In the first round, a task owns a block of keys and values. In the
// second round, a task owns up to kGroup queries of a query head. One round and two rounds add in the same order, so
// the bits are equal.
void CpuKernels::attention_backward(const AttentionBackward& call) {
  const AttentionShape& shape = call.shape;
  check(call.qkv, shape, call.dropout);
  const int64_t channels = shape.channels(), num_heads = shape.num_heads, width = shape.row_channels();
  TESSERA_ASSERT(call.o.shape == (Shape{call.qkv.shape[0], channels}) && call.d_o.shape == call.o.shape &&
                 call.d_qkv.shape == call.qkv.shape);
  TESSERA_ASSERT(call.log_sum_exp.shape == (Shape{call.qkv.shape[0], num_heads}));
  const int64_t group = HeadOffsets::queries_per_kv_head(shape), block_keys = keys_of_block(shape.head_dim);
  with_float_type(call.qkv.dtype, [&](auto zero) {
    using T = decltype(zero);
    // Calls body(head, gradients) for query head h in a task's sequence. i is the head's index, from 0, among the query
    // heads that share its keys and values.
    const auto with_head = [&](const AttentionTasks::Task& task, int64_t h, int64_t i, const auto& body) {
      const HeadOffsets offsets(shape, h);
      const int64_t at = task.begin * channels + h * shape.head_dim;
      T* d_row = call.d_qkv.as<T>() + task.begin * width;
      body(Head<T>(call.qkv.as<T>() + task.begin * width, shape, h, call.dropout, task.begin, task.length),
           HeadGradients<T>{call.o.as<T>() + at, call.d_o.as<T>() + at,
                            call.log_sum_exp.as<T>() + task.begin * num_heads + h, d_row + offsets.q, d_row + offsets.k,
                            d_row + offsets.v, channels, num_heads, i == 0});
    };
    const auto with_group = [&](const AttentionTasks::Task& task, const auto& body) {
      for (int64_t i = 0; i < group; ++i) with_head(task, task.head * group + i, i, body);
    };
    if (!is_longest_too_long(call.starts, shape.kv_heads(), shape.window, team_.num_threads())) {
      attention_tasks_.plan(call.starts, call.qkv.shape[0], shape.kv_heads(), 0);
      team_.for_each(attention_tasks_.count(), [&](int64_t thread, int64_t index) {
        const auto task = attention_tasks_[index];
        with_group(task, [&](const Head<T>& head, const HeadGradients<T>& at) {
          for (int64_t k0 = 0; k0 < task.length; k0 += block_keys) {
            backward_block(head, at, task.length, k0, 0, task.length, Gradients::all,
                           Scratch<T>(team_.scratch<T>(thread)));
          }
        });
      });
      return;
    }
    attention_tasks_.plan(call.starts, call.qkv.shape[0], shape.kv_heads(), block_keys);
    team_.for_each(attention_tasks_.count(), [&](int64_t thread, int64_t index) {
      const auto task = attention_tasks_[index];
      // The tasks of a sequence's last block come first. The next line reverses this order: more queries see
      // early keys, so the blocks of early keys take longest and should start first.
      const int64_t k0 = ((task.length - 1) / block_keys - task.block) * block_keys;
      with_group(task, [&](const Head<T>& head, const HeadGradients<T>& at) {
        backward_block(head, at, task.length, k0, 0, task.length, Gradients::of_keys_and_values,
                       Scratch<T>(team_.scratch<T>(thread)));
      });
    });
    attention_tasks_.plan(call.starts, call.qkv.shape[0], num_heads, kGroup);
    team_.for_each(attention_tasks_.count(), [&](int64_t thread, int64_t index) {
      const auto task = attention_tasks_[index];
      const int64_t begin = task.block * kGroup, end = std::min(task.length, begin + kGroup);
      with_head(task, task.head, task.head % group, [&](const Head<T>& head, const HeadGradients<T>& at) {
        for (int64_t k0 = first_block(begin, head.window, block_keys); k0 < end; k0 += block_keys) {
          backward_block(head, at, task.length, k0, begin, end, Gradients::of_queries,
                         Scratch<T>(team_.scratch<T>(thread)));
        }
      });
    });
  });
}

}  // namespace tessera::cpu
