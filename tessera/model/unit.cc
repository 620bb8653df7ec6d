#include "tessera/model/unit.h"

#include <vector>

namespace tessera {

void weight_gradient(Frame& frame, View d_y, View x, View d_weight) {
  if (d_weight) frame.ops->linear_backward_weight(d_y, x, frame.fresh_gradients, d_weight);
}

void bias_gradients(Frame& frame, std::initializer_list<BiasGradient> gradients) {
  std::vector<BiasGradient> wanted;
  for (const BiasGradient& one : gradients) {
    if (one.d_bias) wanted.push_back(one);
  }
  if (!wanted.empty()) frame.ops->linear_backward_bias(wanted);
}

View or_unwanted(Frame& frame, View gradient, int64_t elems, DType dtype) {
  return gradient ? gradient : frame.stack.push({elems}, dtype);
}

View attention_workspace(Frame& frame, const AttentionShape& shape, int64_t num_tokens, View unused) {
  const Shape needed{attention_workspace_elems(frame.dtype, shape, num_tokens)};
  const View view{unused.data, DType::f32, needed};
  return view.bytes() <= unused.bytes() ? view : frame.stack.push(needed, DType::f32);
}

void norm_backward(Frame& frame, View d_y, View x, View weight, View bias, View stats, View residual, View d_x,
                   View d_weight, View d_bias, View y) {
  const StackScope scope(frame.stack);
  const DType dtype = d_weight ? d_weight.dtype : d_bias ? d_bias.dtype : frame.dtype;
  const View weight_sums = or_unwanted(frame, d_weight, x.shape[1], dtype),
             bias_sums = or_unwanted(frame, d_bias, x.shape[1], dtype);
  frame.ops->layer_norm_backward(d_y, x, weight, bias, stats, residual, d_x, weight_sums, bias_sums, y);
}

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
