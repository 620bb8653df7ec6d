// The sizes of the models that --model accepts by name, for example bloom-560m. Sources: the config.json files of
// bigscience/bloom-*, meta-llama/Llama-3.*, Qwen/Qwen2.5-*, Qwen/Qwen3-* and mistralai/Mistral-7B-v0.3.
#include <array>

#include "tessera/model/config.h"

namespace tessera {
namespace {

struct BloomShape {
  const char* name;
  int64_t hidden_size, num_layers, num_heads;
};
constexpr BloomShape kBloom[] = {
    {"bloom-560m", 1024, 24, 16}, {"bloom-1b1", 1536, 24, 16}, {"bloom-1b7", 2048, 24, 16},
    {"bloom-3b", 2560, 30, 32},   {"bloom-7b1", 4096, 30, 32}, {"bloom-176b", 14336, 70, 112},
};

struct LlamaShape {
  const char *name, *architecture;
  int64_t vocab_size, hidden_size, num_layers, num_heads, num_kv_heads, head_dim, ff_dim, max_positions;
  double epsilon, theta;
  double llama3_factor;  // factor of the llama3 scaling of rotary positions; 0: no scaling
  bool tied_head;
  int32_t bos_token_id, eos_token_id;
};
constexpr LlamaShape kLlama[] = {
    {"llama-3.2-1b", "llama", 128256, 2048, 16, 32, 8, 64, 8192, 131072, 1e-5, 5e5, 32, true, 128000, 128001},
    {"llama-3.2-3b", "llama", 128256, 3072, 28, 24, 8, 128, 8192, 131072, 1e-5, 5e5, 32, true, 128000, 128001},
    {"llama-3.1-8b", "llama", 128256, 4096, 32, 32, 8, 128, 14336, 131072, 1e-5, 5e5, 8, false, 128000, 128001},
    {"llama-3.1-70b", "llama", 128256, 8192, 80, 64, 8, 128, 28672, 131072, 1e-5, 5e5, 8, false, 128000, 128001},
    {"qwen2.5-0.5b", "qwen2", 151936, 896, 24, 14, 2, 64, 4864, 32768, 1e-6, 1e6, 0, true, 151643, 151643},
    {"qwen2.5-1.5b", "qwen2", 151936, 1536, 28, 12, 2, 128, 8960, 131072, 1e-6, 1e6, 0, true, 151643, 151643},
    {"qwen2.5-3b", "qwen2", 151936, 2048, 36, 16, 2, 128, 11008, 32768, 1e-6, 1e6, 0, true, 151643, 151643},
    {"qwen2.5-7b", "qwen2", 152064, 3584, 28, 28, 4, 128, 18944, 131072, 1e-6, 1e6, 0, false, 151643, 151643},
    {"qwen2.5-14b", "qwen2", 152064, 5120, 48, 40, 8, 128, 13824, 131072, 1e-5, 1e6, 0, false, 151643, 151643},
    {"qwen2.5-32b", "qwen2", 152064, 5120, 64, 40, 8, 128, 27648, 131072, 1e-5, 1e6, 0, false, 151643, 151643},
    {"qwen2.5-72b", "qwen2", 152064, 8192, 80, 64, 8, 128, 29568, 131072, 1e-5, 1e6, 0, false, 151643, 151643},
    {"qwen3-0.6b", "qwen3", 151936, 1024, 28, 16, 8, 128, 3072, 40960, 1e-6, 1e6, 0, true, 151643, 151645},
    {"qwen3-1.7b", "qwen3", 151936, 2048, 28, 16, 8, 128, 6144, 40960, 1e-6, 1e6, 0, true, 151643, 151645},
    {"qwen3-4b", "qwen3", 151936, 2560, 36, 32, 8, 128, 9728, 40960, 1e-6, 1e6, 0, true, 151643, 151645},
    {"qwen3-8b", "qwen3", 151936, 4096, 36, 32, 8, 128, 12288, 40960, 1e-6, 1e6, 0, false, 151643, 151645},
    {"qwen3-14b", "qwen3", 151936, 5120, 40, 40, 8, 128, 17408, 40960, 1e-6, 1e6, 0, false, 151643, 151645},
    {"qwen3-32b", "qwen3", 151936, 5120, 64, 64, 8, 128, 25600, 40960, 1e-6, 1e6, 0, false, 151643, 151645},
    {"mistral-7b", "mistral", 32768, 4096, 32, 32, 8, 128, 14336, 32768, 1e-5, 1e6, 0, false, 1, 2},
};

ModelConfig config_of(const BloomShape& shape) {
  ModelConfig config;
  config.vocab_size = 250880;
  config.hidden_size = shape.hidden_size;
  config.num_layers = shape.num_layers;
  config.num_heads = shape.num_heads;
  config.ff_dim = 4 * shape.hidden_size;
  config.unk_token_id = 0;
  config.bos_token_id = 1;
  config.eos_token_id = 2;
  config.pad_token_id = 3;
  return config;
}

ModelConfig config_of(const LlamaShape& shape) {
  ModelConfig config;
  config.architecture = shape.architecture;
  config.vocab_size = shape.vocab_size;
  config.hidden_size = shape.hidden_size;
  config.num_layers = shape.num_layers;
  config.num_heads = shape.num_heads;
  config.num_kv_heads = shape.num_kv_heads;
  config.head_channels = shape.head_dim;
  config.ff_dim = shape.ff_dim;
  config.max_positions = shape.max_positions;
  config.layer_norm_epsilon = shape.epsilon;
  config.tied_head = shape.tied_head;
  config.qkv_bias = config.architecture == "qwen2";
  config.head_norms = config.architecture == "qwen3";
  config.rope.theta = shape.theta;
  if (shape.llama3_factor > 0) {
    config.rope.scaling = Rope::Scaling::llama3;
    config.rope.factor = shape.llama3_factor;
    config.rope.original_positions = 8192;
  }
  config.bos_token_id = shape.bos_token_id;
  config.eos_token_id = shape.eos_token_id;
  return config;
}

}  // namespace

std::vector<std::string> known_model_names() {
  std::vector<std::string> names;
  for (const BloomShape& shape : kBloom) names.emplace_back(shape.name);
  for (const LlamaShape& shape : kLlama) names.emplace_back(shape.name);
  return names;
}

bool find_known_model(std::string_view name, ModelConfig& config) {
  for (const BloomShape& shape : kBloom) {
    if (name == shape.name) return config = config_of(shape), true;
  }
  for (const LlamaShape& shape : kLlama) {
    if (name == shape.name) return config = config_of(shape), true;
  }
  return false;
}

}  // namespace tessera
