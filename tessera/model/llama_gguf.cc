#include "tessera/model/llama_gguf.h"

#include <fmt/format.h>

#include <cmath>

namespace tessera {

namespace {

using Scaling = Rope::Scaling;

constexpr GgufLayer kLlamaLayers[] = {
    {"embed_tokens", "token_embd"},
    {"norm", "output_norm"},
    {"lm_head", "output"},
    {"input_layernorm", "attn_norm"},
    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},
    {"self_attn.o_proj", "attn_output"},
    {"self_attn.q_norm", "attn_q_norm"},
    {"self_attn.k_norm", "attn_k_norm"},
    {"post_attention_layernorm", "ffn_norm"},
    {"mlp.gate_proj", "ffn_gate"},
    {"mlp.up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},
};

std::string shared_fault(const ModelConfig& config) {
  if (config.activation != Activation::silu) return "hidden_act must be \"silu\"";
  if (config.rope.scaling == Scaling::yarn && !config.rope.truncates) return "\"truncate\" of yarn must be true";
  return "";
}

std::string llama_gguf_fault(const ModelConfig& config) {
  return shared_fault(config);
}

std::string qwen_gguf_fault(const ModelConfig& config) {
  if (config.rope.scaling == Scaling::llama3) return "rope_type \"llama3\" exists only in Llama's models";
  if (config.o_bias || config.mlp_bias) return "it has biases that Qwen's models do not have";
  return shared_fault(config);
}

std::string qwen3_gguf_fault(const ModelConfig& config) {
  if (config.qkv_bias) return "it has biases that Qwen3's models do not have";
  return qwen_gguf_fault(config);
}

std::string window_note(const ModelConfig& config) {
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    const int64_t window = config.window_of(layer);
    if (window == 0 || (config.max_positions > 0 && window >= config.max_positions)) continue;
    return fmt::format(
        "llama.cpp has no sliding window in this model. Its results differ for texts of more than {} tokens", window);
  }
  return "";
}

uint32_t size(int64_t value) {
  return static_cast<uint32_t>(value);
}

void add_rope(const Rope& rope, GgufKeys& keys) {
  keys.push_back({"rope.freq_base", static_cast<float>(rope.theta)});
  if (rope.scaling != Scaling::linear && rope.scaling != Scaling::yarn) return;
  const bool yarn = rope.scaling == Scaling::yarn;
  keys.push_back({"rope.scaling.type", std::string(yarn ? "yarn" : "linear")});
  keys.push_back({"rope.scaling.factor", static_cast<float>(rope.factor)});
  if (!yarn) return;
  const Rope defaults;
  keys.push_back({"rope.scaling.original_context_length", size(std::llround(rope.original_positions))});
  if (rope.beta_fast != defaults.beta_fast) {
    keys.push_back({"rope.scaling.yarn_beta_fast", static_cast<float>(rope.beta_fast)});
  }
  if (rope.beta_slow != defaults.beta_slow) {
    keys.push_back({"rope.scaling.yarn_beta_slow", static_cast<float>(rope.beta_slow)});
  }
  // llama.cpp multiplies sines and cosines by the usual factor of yarn, and by the value of this key.
  const double usual = yarn_attention_factor(rope.factor, 0, 0);
  if (std::abs(rope.attention_factor - usual) > 1e-6 * usual) {
    keys.push_back({"rope.scaling.attn_factor", static_cast<float>(rope.attention_factor / usual)});
  }
}

GgufKeys qwen_keys(const ModelConfig& config) {
  GgufKeys keys = {
      {"block_count", size(config.num_layers)},
      {"context_length", size(config.max_positions)},
      {"embedding_length", size(config.hidden_size)},
      {"feed_forward_length", size(config.ff_dim)},
      {"attention.head_count", size(config.num_heads)},
      {"attention.head_count_kv", size(config.kv_heads())},
      {"attention.layer_norm_rms_epsilon", static_cast<float>(config.layer_norm_epsilon)},
      {"attention.key_length", size(config.head_dim())},
      {"attention.value_length", size(config.head_dim())},
  };
  add_rope(config.rope, keys);
  return keys;
}

GgufKeys llama_gguf_keys(const ModelConfig& config) {
  GgufKeys keys = qwen_keys(config);
  keys.push_back({"vocab_size", size(config.vocab_size)});
  keys.push_back({"rope.dimension_count", size(config.head_dim())});
  return keys;
}

// Llama's form of llama.cpp rotates the channels 2j and 2j + 1 of a head together, and ours j and j + D/2.
GgufRows llama_rows(const ModelConfig& config, std::string_view layer) {
  const bool rotates = layer == "self_attn.q_proj" || layer == "self_attn.k_proj";
  return rotates ? GgufRows{2, config.head_dim() / 2, 1} : GgufRows{};
}

GgufRows same_rows(const ModelConfig&, std::string_view) {
  return {};
}

std::vector<float> llama_divisors(const ModelConfig& config) {
  return config.rope.scaling == Scaling::llama3 ? llama3_divisors(config.rope, config.head_dim())
                                                : std::vector<float>{};
}

std::vector<float> no_divisors(const ModelConfig&) {
  return {};
}

}  // namespace

const GgufForm kLlamaGguf = {"llama",     "layers.",       kLlamaLayers, llama_gguf_fault,
                             window_note, llama_gguf_keys, llama_rows,   llama_divisors};
const GgufForm kQwen2Gguf = {"qwen2",     "layers.", kLlamaLayers, qwen_gguf_fault,
                             window_note, qwen_keys, same_rows,    no_divisors};
const GgufForm kQwen3Gguf = {"qwen3",     "layers.", kLlamaLayers, qwen3_gguf_fault,
                             window_note, qwen_keys, same_rows,    no_divisors};

}  // namespace tessera
