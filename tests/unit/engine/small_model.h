// A two-block model, and batches for it.
#pragma once

#include <string>
#include <vector>

#include "tessera/base/random.h"
#include "tessera/engine/engine.h"

namespace tessera {

inline ModelConfig small_config(const std::string& architecture, double dropout = 0, bool residual_from_norm = false) {
  ModelConfig config;
  config.architecture = architecture;
  config.vocab_size = 13;
  config.hidden_size = 12;
  config.num_layers = 2;
  config.num_heads = 3;
  config.ff_dim = architecture == "bloom" ? 48 : 20;
  config.initializer_range = 0.3;
  config.hidden_dropout = config.attention_dropout = dropout;
  config.residual_from_norm = residual_from_norm;
  if (architecture == "bloom" || architecture == "gpt") return config;
  config.hidden_dropout = 0;  // these models have dropout only in attention
  config.num_kv_heads = architecture == "llama" ? 3 : 1;
  config.qkv_bias = architecture != "mistral";
  config.o_bias = config.mlp_bias = architecture == "llama";
  if (architecture == "qwen3") {
    config.head_norms = true;
    config.head_channels = 6;  // the queries have 18 channels (3 heads of 6), but the model has only 12
    config.sliding_window = 3;
    config.sliding_layers = {false, true};
  }
  return config;
}

inline ModelConfig untied(ModelConfig config) {
  config.tied_head = false;
  return config;
}

inline PackedBatch make_batch(uint64_t seed, std::vector<int32_t> lengths) {
  PackedBatch batch;
  batch.starts = {0};
  RandomStream random(seed, 0);
  for (const int32_t length : lengths) {
    for (int32_t t = 0; t < length; ++t) {
      batch.ids.push_back(static_cast<int32_t>(random.next_below(13)));
      const bool target = t + 1 < length && random.next_below(3) > 0;
      batch.labels.push_back(target ? static_cast<int32_t>(random.next_below(13)) : -100);
      batch.num_targets += target;
    }
    batch.starts.push_back(static_cast<int32_t>(batch.ids.size()));
  }
  return batch;
}

// The sequence b of the batch alone, with the number that it has in the batch.
inline PackedBatch alone(const PackedBatch& batch, size_t b) {
  const auto begin = batch.starts[b], end = batch.starts[b + 1];
  PackedBatch part;
  part.ids.assign(batch.ids.begin() + begin, batch.ids.begin() + end);
  part.labels.assign(batch.labels.begin() + begin, batch.labels.begin() + end);
  part.starts = {0, end - begin};
  for (const int32_t label : part.labels) part.num_targets += label >= 0;
  part.sequence_numbers = {static_cast<int64_t>(b)};
  return part;
}

}  // namespace tessera
