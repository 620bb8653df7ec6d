// What BLOOM and gpt share in config.json and in the size of their blocks.
#pragma once

#include <span>

#include "tessera/model/config.h"
#include "tessera/model/config_keys.h"

namespace tessera {

class ConfigReader;

// The keys of config.json. Most rows apply to both architectures. The others need a trait.
std::span<const ConfigKeys> bloom_keys();
inline constexpr uint32_t kBloomTrait = 1;

// Reads the sizes and layer_norm_epsilon.
void read_bloom_sizes(const ConfigReader& read, ModelConfig& config);
// Reads hidden_dropout and attention_dropout. `fallback`: the value of a missing key.
void read_dropouts(const ConfigReader& read, double fallback, ModelConfig& config);
double parameters_of_bloom_block(const ModelConfig& config);

}  // namespace tessera
