#include "tessera/session/fingerprint.h"

#include <nlohmann/json.hpp>

#include "tessera/comm/world.h"
#include "tessera/store/checksum.h"

namespace tessera {

std::string checksum_of(const std::vector<Sample>& samples) {
  Checksum data;
  for (const Sample& sample : samples) {
    const auto size = static_cast<int64_t>(sample.ids.size());
    data.update(&size, sizeof size);
    data.update(sample.ids.data(), sample.ids.size() * sizeof(int32_t));
    data.update(sample.labels.data(), sample.labels.size() * sizeof(int32_t));
  }
  return checksum_text(data.value());
}

Record model_fingerprint(const ModelConfig& config) {
  Record record{{"architecture", config.architecture},
                {"vocab_size", config.vocab_size},
                {"hidden_size", config.hidden_size},
                {"num_layers", config.num_layers},
                {"num_heads", config.num_heads},
                {"ff_dim", config.ff_dim},
                {"layer_norm_epsilon", config.layer_norm_epsilon},
                {"residual_from_norm", config.residual_from_norm}};
  record["head"] = config.tied_head ? "" : "untied";
  if (!config.is_llama_like()) return record;
  record["num_kv_heads"] = config.kv_heads();
  record["head_dim"] = config.head_dim();
  record["activation"] = config.activation == Activation::silu ? "silu" : "gelu_pytorch_tanh";
  record["biases"] = {config.qkv_bias, config.o_bias, config.mlp_bias};
  record["rotary"] = rope_frequencies(config.rope, config.head_dim());
  record["rotary_scale"] = config.rope.attention_factor;
  std::vector<int64_t> windows;
  for (int64_t layer = 0; layer < config.num_layers; ++layer) windows.push_back(config.window_of(layer));
  record["windows"] = windows;
  return record;
}

void check_ranks_agree(Communicator& world, const Record& fingerprint) {
  std::vector<std::pair<std::string, std::string>> facts;
  for (const auto& [key, value] : fingerprint.items()) {
    std::string text = to_json(value);
    if (value.is_structured()) {  // too long for an error
      Checksum checksum;
      checksum.update(text.data(), text.size());
      text = "a list with the checksum " + checksum_text(checksum.value());
    }
    facts.emplace_back(key, text);
  }
  check_agreement(world, facts);
}

}  // namespace tessera
