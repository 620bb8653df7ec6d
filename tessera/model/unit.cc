#include "tessera/model/unit.h"

namespace tessera {

void attend(Frame& frame, int64_t layer, View qkv, const AttentionShape& shape, const Dropout& dropout, View o,
            View log_sum_exp) {
  KvCache* cache = frame.cache;
  const auto l = static_cast<size_t>(layer);
  if (cache && cache->decoding) {
    frame.ops->attention_decode(qkv, shape, cache->starts, cache->lengths, cache->keys[l], cache->values[l], o);
    return;
  }
  frame.ops->attention_forward(qkv, frame.batch.starts, shape, dropout, o, log_sum_exp);
  if (cache) {
    frame.ops->store_keys_values(qkv, frame.batch.starts, shape, cache->starts, cache->keys[l], cache->values[l]);
  }
}

}  // namespace tessera
