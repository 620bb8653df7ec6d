#include "tessera/model/adapter.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <regex>

#include "tessera/base/error.h"
#include "tessera/base/option_names.h"
#include "tessera/base/text.h"

namespace tessera {

std::string layer_of_tensor(std::string_view name) {
  // torch.nn.MultiheadAttention names its weight "in_proj_weight".
  for (const std::string_view end : {".weight", ".bias", "_weight", "_bias"}) {
    if (name.ends_with(end)) return std::string(name.substr(0, name.size() - end.size()));
  }
  return std::string(name);
}

std::optional<int64_t> block_of_path(std::string_view path) {
  for (size_t begin = 0; begin < path.size();) {
    const size_t end = std::min(path.find('.', begin), path.size());
    const std::string_view segment = path.substr(begin, end - begin);
    if (!segment.empty() && segment.size() < 10 && std::ranges::all_of(segment, is_digit)) {
      return std::stoll(std::string(segment));
    }
    begin = end + 1;
  }
  return std::nullopt;
}

bool is_adapter_tensor(std::string_view name) {
  return name.ends_with(".lora_A.weight") || name.ends_with(".lora_B.weight");
}

std::optional<std::string> name_of_expression(std::string_view expression) {
  std::string name;
  for (size_t i = 0; i < expression.size(); ++i) {
    const bool is_escaped_dot = expression.substr(i).starts_with("\\.");
    const char c = expression[i += is_escaped_dot ? 1 : 0];
    const bool is_plain = std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-';
    if (!is_plain && !is_escaped_dot) return std::nullopt;
    name += c;
  }
  return name.empty() ? std::nullopt : std::optional(name);
}

bool matches_path(const std::string& expression, const std::string& path, const char* option) {
  // Most expressions are names, and a plan builds hundreds of models.
  if (const auto name = name_of_expression(expression)) {
    return path.ends_with(*name) && (path.size() == name->size() || path[path.size() - name->size() - 1] == '.');
  }
  constexpr size_t kLongest = 2000;
  const auto refuse = [&](const std::string& why) {
    throw UsageError(option_place(option), fmt::format("\"{}\" {}", printable(expression), why),
                     "Give names of layers such as q_proj, or expressions such as layers\\.[0-9]\\..*_proj");
  };
  if (expression.size() > kLongest) refuse("is too long for a regular expression");
  try {
    // An expression may come from a downloaded file. With this flag of libstdc++, no expression takes exponential time.
    constexpr auto kFlags = std::regex::ECMAScript | std::regex_constants::__polynomial;
    return std::regex_match(path, std::regex("(.*\\.)?(" + expression + ")", kFlags));
  } catch (const std::regex_error& error) {
    refuse(fmt::format("is no regular expression: {}", error.what()));
  }
  return false;
}

bool are_interchangeable(AdapterOptions a, AdapterOptions b) {
  a.dropout = b.dropout;
  for (AdapterOptions* options : {&a, &b}) {  // PEFT writes names in any order
    for (auto* names : {&options->targets, &options->excluded, &options->whole}) std::ranges::sort(*names);
  }
  return a == b;
}

std::optional<LayerAdapter> adapter_of_layer(const AdapterOptions& options, const std::string& path, bool is_head) {
  const auto any_matches = [&](const std::vector<std::string>& expressions, const char* option) {
    return std::ranges::any_of(expressions, [&](const std::string& one) { return matches_path(one, path, option); });
  };
  if (options.targets.empty() ? is_head : !any_matches(options.targets, "lora_target_modules")) return std::nullopt;
  if (any_matches(options.excluded, "lora_exclude_modules")) return std::nullopt;
  if (!options.layers.empty()) {
    const auto block = block_of_path(path);
    if (!block || std::ranges::find(options.layers, *block) == options.layers.end()) return std::nullopt;
  }
  const auto value_of = [&](const auto& patterns, const char* option, double otherwise) {
    const auto found =
        std::ranges::find_if(patterns, [&](const auto& entry) { return matches_path(entry.first, path, option); });
    return found == patterns.end() ? otherwise : found->second;
  };
  LayerAdapter adapter;
  const double r = value_of(options.ranks, "lora_rank_pattern", static_cast<double>(options.rank));
  adapter.rank = static_cast<int64_t>(r);
  adapter.scale =
      value_of(options.alphas, "lora_alpha_pattern", options.alpha) / (options.rank_stabilized ? std::sqrt(r) : r);
  return adapter;
}

bool trains_whole(const AdapterOptions& options, const std::string& tensor, bool layer_is_adapted) {
  const bool is_bias = tensor.ends_with("bias");
  if (is_bias && options.biases == AdaptedBiases::all) return true;
  if (is_bias && options.biases == AdaptedBiases::lora_only && layer_is_adapted) return true;
  const std::string path = layer_of_tensor(tensor);
  return std::ranges::any_of(options.whole, [&](const std::string& end) { return path.ends_with(end); });
}

}  // namespace tessera
