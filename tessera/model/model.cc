#include "tessera/model/model.h"

#include <fmt/format.h>

#include <fnmatch.h>

#include <algorithm>

#include "tessera/model/bloom.h"
#include "tessera/model/gpt.h"
#include "tessera/model/llama.h"

namespace tessera {
namespace {

constexpr const char* kHeadWeight = "lm_head.weight";

struct Architecture {
  std::vector<std::string> names;
  Root::Names root;
  Head::Parts head;
  bool unit_variance_embedding;  // the random embedding has standard deviation 1 instead of initializer_range
  const char* file_prefix;       // begins the names of tensors in files, except "lm_head.*"
  std::vector<float> (*constants)(const ModelConfig&);
  std::unique_ptr<Block> (*make_block)(const ModelConfig&, int64_t layer, View constants);
};

const std::vector<Architecture>& architectures() {
  static const std::vector<Architecture> table = {
      {{"bloom"},
       {"word_embeddings.weight", "word_embeddings_layernorm"},
       {.final_norm = "ln_f", .weight = kHeadWeight},
       false,
       "transformer.",
       [](const ModelConfig& config) { return alibi_slopes(config.num_heads); },
       [](const ModelConfig& config, int64_t layer, View constants) -> std::unique_ptr<Block> {
         return std::make_unique<BloomBlock>(config, layer, constants);
       }},
      {{"gpt"},
       {"token_embedding.weight", ""},
       {.weight = kHeadWeight, .bias = "lm_head.bias", .like_linear = true},
       true,
       "",
       [](const ModelConfig&) { return std::vector<float>{}; },
       [](const ModelConfig& config, int64_t layer, View) -> std::unique_ptr<Block> {
         return std::make_unique<GptBlock>(config, layer);
       }},
      {{"llama", "mistral", "qwen2", "qwen3"},
       {"embed_tokens.weight", ""},
       {.final_norm = "norm", .norm = Norm::Kind::rms, .weight = kHeadWeight},
       false,
       "model.",
       [](const ModelConfig& config) { return rope_frequencies(config.rope, config.head_dim()); },
       [](const ModelConfig& config, int64_t layer, View) -> std::unique_ptr<Block> {
         return std::make_unique<LlamaBlock>(config, layer);
       }},
  };
  return table;
}

}  // namespace

Model::Model(ModelConfig config, Device& device, const std::vector<std::string>& frozen) : config_(std::move(config)) {
  const auto& table = architectures();
  const auto row = std::find_if(table.begin(), table.end(), [&](const Architecture& a) {
    return std::find(a.names.begin(), a.names.end(), config_.architecture) != a.names.end();
  });
  TESSERA_ASSERT(row != table.end());
  file_prefix_ = row->file_prefix;
  embedding_name_ = row->root.embedding;
  if (config_.tied_head) tolerated_names_ = {row->head.weight};
  if (const std::vector<float> values = row->constants(config_); !values.empty()) {
    const auto size = static_cast<int64_t>(values.size());
    constants_memory_ = device.allocate(size * 4, Category::workspace);
    constants_ = constants_memory_.view({size}, DType::f32);
    device.copy_from_host(values.data(), constants_);
  }
  const double std = row->unit_variance_embedding ? 1.0 : config_.initializer_range;
  const Initializer init{Initializer::Kind::normal, std, 0};
  root_ = std::make_unique<Root>(config_, row->root, init, config_.tied_head ? &row->head : nullptr);
  for (int64_t i = 0; i < config_.num_layers; ++i) blocks_.push_back(row->make_block(config_, i, constants_));
  if (!config_.tied_head) head_ = std::make_unique<HeadUnit>(config_, row->head, init);
  if (frozen.empty()) return;
  const auto is_frozen = [&](const std::string& name) {
    return std::ranges::any_of(frozen, [&](const auto& pattern) { return matches(pattern, name); });
  };
  root_->freeze(is_frozen);
  for (const auto& block : blocks_) block->freeze(is_frozen);
  if (head_) head_->freeze(is_frozen);
}

bool Model::matches(const std::string& pattern, const std::string& name) const {
  return fnmatch(pattern.c_str(), name.c_str(), 0) == 0 || fnmatch(pattern.c_str(), file_name(name).c_str(), 0) == 0;
}

const Unit& Model::unit(int64_t u) const {
  if (u == 0) return *root_;
  return is_block(u) ? static_cast<const Unit&>(block(u - 1)) : *head_;
}

std::string Model::file_name(const std::string& name) const {
  return name.starts_with("lm_head.") ? name : file_prefix_ + name;
}

void Model::begin(Frame& f) const {
  if (!config_.is_llama_like() || f.batch.num_tokens == 0) return;
  f.rotations = f.push_stats(f.batch.num_tokens, config_.head_dim());
  // While decoding, each sequence has one new token. Its position is the number of the sequence's tokens in the cache.
  const View positions = f.cache && f.cache->decoding ? f.cache->lengths : f.batch.positions;
  f.ops->rotary_angles(positions, constants_, config_.rope.attention_factor, f.rotations);
}

int64_t Model::num_parameters() const {
  int64_t n = 0;
  for (int64_t u = 0; u < num_units(); ++u) n += unit(u).table().num_parameters();
  return n;
}

int64_t Model::num_trainable_parameters() const {
  int64_t n = 0;
  for (int64_t u = 0; u < num_units(); ++u) n += unit(u).table().num_trainable_parameters();
  return n;
}

int64_t Model::first_trained() const {
  if (root_->embedding_trains()) return 0;
  int64_t u = 1;
  while (u <= num_blocks() && unit(u).table().num_elems(Section::trainable) == 0) ++u;
  return u;
}

}  // namespace tessera
