#include "tessera/model/unit.h"

namespace tessera {

View or_unwanted(Frame& frame, View gradient, int64_t elems, DType dtype) {
  return gradient ? gradient : frame.stack.push({elems}, dtype);
}

int64_t push_parts(Frame& frame, const std::function<void()>& push_attention, const std::function<void()>& push_mlp) {
  const RecomputedParts recomputed = frame.recomputed;
  if (!recomputed.attention) push_attention();
  if (!recomputed.mlp) push_mlp();
  const int64_t kept = frame.stack.mark();
  if (recomputed.attention) push_attention();
  if (recomputed.mlp) push_mlp();
  return kept;
}

View attention_workspace(Frame& frame, const AttentionShape& shape, int64_t num_tokens, View unused) {
  const Shape needed{attention_workspace_elems(frame.dtype, shape, num_tokens)};
  const bool fits = needed.num_elems() * static_cast<int64_t>(size_of(DType::f32)) <= unused.bytes();
  return fits ? View{unused.data, DType::f32, needed} : frame.stack.push(needed, DType::f32);
}

void attend(Frame& frame, int64_t layer, View qkv, const AttentionShape& shape, const Dropout& dropout, View o,
            View log_sum_exp) {
  KvCache* cache = frame.cache;
  const auto l = static_cast<size_t>(layer);
  if (cache && cache->decoding) {
    frame.ops->attention_decode({.qkv = qkv,
                                 .shape = shape,
                                 .cache_starts = cache->starts,
                                 .lengths = cache->lengths,
                                 .keys = cache->keys[l],
                                 .values = cache->values[l],
                                 .o = o});
    return;
  }
  frame.ops->attention_forward({.qkv = qkv,
                                .starts = frame.batch.starts,
                                .shape = shape,
                                .dropout = dropout,
                                .o = o,
                                .log_sum_exp = log_sum_exp});
  if (cache) {
    frame.ops->store_keys_values({.qkv = qkv,
                                  .starts = frame.batch.starts,
                                  .shape = shape,
                                  .cache_starts = cache->starts,
                                  .keys = cache->keys[l],
                                  .values = cache->values[l]});
  }
}

}  // namespace tessera
