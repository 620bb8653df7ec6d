#include "tessera/model/model.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/model/bloom.h"
#include "tessera/model/gpt.h"
#include "tessera/model/llama.h"

namespace tessera {
namespace {

struct Architecture {
  std::vector<std::string> names;
  Root::Names root;
  bool unit_variance_embedding;  // N(0, 1) instead of N(0, initializer_range)
  const char* file_prefix;
  std::vector<std::string> tolerated_names;
  std::vector<float> (*constants)(const ModelConfig&);
  std::unique_ptr<Block> (*make_block)(const ModelConfig&, int64_t layer, View constants);
};

const std::vector<Architecture>& architectures() {
  static const std::vector<Architecture> table = {
      {{"bloom"},
       {"word_embeddings.weight", "word_embeddings_layernorm", "ln_f", ""},
       false,
       "transformer.",
       {"lm_head.weight"},
       [](const ModelConfig& config) { return alibi_slopes(config.num_heads); },
       [](const ModelConfig& config, int64_t layer, View constants) -> std::unique_ptr<Block> {
         return std::make_unique<BloomBlock>(config, layer, constants);
       }},
      {{"gpt"},
       {"token_embedding.weight", "", "", "lm_head.bias"},
       true,
       "",
       {"lm_head.weight"},
       [](const ModelConfig&) { return std::vector<float>{}; },
       [](const ModelConfig& config, int64_t layer, View) -> std::unique_ptr<Block> {
         return std::make_unique<GptBlock>(config, layer);
       }},
      {{"llama", "mistral", "qwen2", "qwen3"},
       {"embed_tokens.weight", "", "norm", "", Norm::Kind::rms},
       false,
       "model.",
       {"lm_head.weight"},
       [](const ModelConfig& config) { return rope_frequencies(config.rope, config.head_dim()); },
       [](const ModelConfig& config, int64_t layer, View) -> std::unique_ptr<Block> {
         return std::make_unique<LlamaBlock>(config, layer);
       }},
  };
  return table;
}

}  // namespace

Model::Model(ModelConfig config, Device& device) : config_(std::move(config)) {
  const auto& table = architectures();
  const auto row = std::find_if(table.begin(), table.end(), [&](const Architecture& a) {
    return std::find(a.names.begin(), a.names.end(), config_.architecture) != a.names.end();
  });
  TESSERA_ASSERT(row != table.end());
  file_prefix_ = row->file_prefix;
  embedding_name_ = row->root.embedding;
  tolerated_names_ = row->tolerated_names;
  if (const std::vector<float> values = row->constants(config_); !values.empty()) {
    const auto size = static_cast<int64_t>(values.size());
    constants_memory_ = device.allocate(size * 4, Category::workspace);
    constants_ = constants_memory_.view({size}, DType::f32);
    device.copy_from_host(values.data(), constants_);
  }
  const double std = row->unit_variance_embedding ? 1.0 : config_.initializer_range;
  root_ = std::make_unique<Root>(config_, row->root, Initializer{Initializer::Kind::normal, std, 0});
  for (int64_t i = 0; i < config_.num_layers; ++i) blocks_.push_back(row->make_block(config_, i, constants_));
}

void Model::begin(Frame& f) const {
  if (!config_.is_llama_like() || f.batch.num_tokens == 0) return;
  f.rotations = f.push_stats(f.batch.num_tokens, config_.head_dim());
  // While decoding, each sequence has one token, at the position after those in the cache.
  const View positions = f.cache && f.cache->decoding ? f.cache->lengths : f.batch.positions;
  f.ops->rotary_angles(positions, constants_, config_.rope.attention_factor, f.rotations);
}

int64_t Model::num_parameters() const {
  int64_t n = 0;
  for (int64_t u = 0; u < num_units(); ++u) n += unit(u).table().num_parameters();
  return n;
}

}  // namespace tessera
