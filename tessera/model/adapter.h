// LoRA adapters (Hu et al. 2021, "LoRA: Low-Rank Adaptation of Large Language Models"): which layers of a model get an
// adapter, and how large it is. The rules and the names are PEFT's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera {

inline constexpr int64_t kMaxAdapterRank = 4096;

// Which bias vectors of the base are trained with an adapter.
enum class AdaptedBiases { none, all, lora_only };

// A layer y = W x + b becomes y = W x + b + s · B A dropout(x) with A [r, in] and B [out, r]. The scale s is alpha / r,
// or alpha / √r if it is rank-stabilized (Kalajdzievski 2023). The base W stays unchanged.
struct AdapterOptions {
  int64_t rank = 8;
  double alpha = 8;
  double dropout = 0;
  bool rank_stabilized = false;
  // Regular expressions for the paths of layers ("model.layers.0.self_attn.q_proj"). An expression must match the path
  // or the end of the path after a dot. Empty: all linear layers except the head.
  std::vector<std::string> targets = {};
  std::vector<std::string> excluded = {};                               // these layers get none
  std::vector<int64_t> layers = {};                                     // numbers of blocks; empty: all
  std::vector<std::pair<std::string, double>> ranks = {}, alphas = {};  // sorted; of each layer, the first match
  std::vector<std::string> whole = {};  // the ends of paths of modules that are trained whole, such as "lm_head"
  AdaptedBiases biases = AdaptedBiases::none;

  bool operator==(const AdapterOptions&) const = default;
};

// Whether two adapters have the same factors, and compute the same without dropout if the values of these are equal.
bool are_interchangeable(AdapterOptions a, AdapterOptions b);

// The adapter of one layer.
struct LayerAdapter {
  int64_t rank = 0;
  double scale = 0;
};

// The path of the layer that has the tensor `name`: "layers.0.mlp.up_proj.weight" → "layers.0.mlp.up_proj".
std::string layer_of_tensor(std::string_view name);
// The number of the block in a path: its first number between dots. nullopt: it has none.
std::optional<int64_t> block_of_path(std::string_view path);
// Whether a tensor of a table is a factor of an adapter: "layers.0.mlp.up_proj.lora_A.weight".
bool is_adapter_tensor(std::string_view name);
// The text that an expression matches if it matches only one text: it consists of letters, digits, "_", "-" and
// escaped dots. nullopt: it is another expression.
std::optional<std::string> name_of_expression(std::string_view expression);
// Whether a regular expression matches a path, or its end after a dot. `option` gives the expression. Throws UsageError
// if it is no regular expression.
bool matches_path(const std::string& expression, const std::string& path, const char* option);

// The adapter of the layer with this path, or nullopt if the options give it none.
std::optional<LayerAdapter> adapter_of_layer(const AdapterOptions& options, const std::string& path, bool is_head);
// Whether the options train a tensor of the base, named as in files.
bool trains_whole(const AdapterOptions& options, const std::string& tensor, bool layer_is_adapted);

}  // namespace tessera
