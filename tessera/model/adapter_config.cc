#include "tessera/model/adapter_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <set>

#include "tessera/base/text.h"
#include "tessera/model/config_reader.h"

namespace tessera {

namespace {

constexpr const char* kAllLinear = "all-linear";
constexpr double kMaxScale = 1e6;

// Options of PEFT that change what an adapter computes, with the values that change nothing.
struct ForeignOption {
  const char* key;
  std::vector<Json> neutral;
  const char* meaning;
};
const std::vector<ForeignOption>& foreign_options() {
  static const std::vector<ForeignOption> options = {
      {"use_dora", {false}, "DoRA (weights divided into magnitude and direction)"},
      {"use_qalora", {false}, "QA-LoRA"},
      {"use_bdlora", {false, Json::object()}, "BD-LoRA"},
      {"kasa_config", {}, "KaSA"},
      {"monteclora_config", {}, "MonteCLoRA"},
      {"velora_config", {}, "VeLoRA"},
      {"arrow_config", {}, "Arrow, which chooses between adapters"},
      {"ensure_weight_tying", {false}, "trained modules that stay tied"},
      {"lora_bias", {false}, "biases of the adapter's own"},
      {"layer_replication", {Json::array()}, "repeated layers"},
      {"target_parameters", {Json::array()}, "adapters of parameters that are no layers"},
      {"trainable_token_indices", {Json::array(), Json::object()}, "single trained tokens"},
      {"alora_invocation_tokens", {Json::array()}, "activated LoRA"},
      {"layers_pattern", {Json::array(), ""}, "other names of the list of layers"},
      {"init_lora_weights", {true, false, "gaussian", "orthogonal"}, "an initialization that changes the base"},
  };
  return options;
}

[[noreturn]] void refuse(const std::string& where, const char* key, const Json& value, const std::string& must) {
  throw InputError(where, fmt::format("\"{}\" is {}, not {}", key, in_words(value), must));
}

bool is_name(const std::string& expression) {
  return name_of_expression(expression).has_value();
}

std::string escaped(const std::string& name) {
  std::string text;
  for (const char c : name) {
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '_' && c != '-') text += '\\';
    text += c;
  }
  return text;
}

std::vector<std::string> texts(const ConfigReader& read, const char* key) {
  std::vector<std::string> result;
  const Json* value = read.value(key);
  if (!value) return result;
  const Json list = value->is_string() ? Json::array({*value}) : *value;
  if (!list.is_array() || !std::ranges::all_of(list, [](const Json& one) { return one.is_string(); })) {
    refuse(read.where(), key, *value, "a list of names");
  }
  for (const Json& one : list) result.push_back(one.get<std::string>());
  return result;
}

// Names, or one regular expression.
std::vector<std::string> expressions(const ConfigReader& read, const char* key) {
  std::vector<std::string> result = texts(read, key);
  const Json* value = read.value(key);
  if (value && value->is_array()) std::ranges::transform(result, result.begin(), escaped);
  return result;
}

std::vector<std::pair<std::string, double>> pattern(const ConfigReader& read, const char* key, double least) {
  std::vector<std::pair<std::string, double>> result;
  const Json* value = read.value(key);
  if (!value) return result;
  if (!value->is_object()) refuse(read.where(), key, *value, "an object");
  for (const auto& [expression, number] : value->items()) {
    const bool is_rank = least > 0;
    const bool has_type = is_rank ? number.is_number_integer() : number.is_number();
    const double most = is_rank ? static_cast<double>(kMaxAdapterRank) : kMaxScale;
    if (!has_type || !(number.get<double>() >= least && number.get<double>() <= most)) {
      refuse(read.where(), key, number,
             fmt::format("a {}number from {} to {} for \"{}\"", is_rank ? "whole " : "", least, most,
                         printable(expression)));
    }
    result.emplace_back(expression, number.get<double>());
  }
  std::ranges::sort(result);
  return result;
}

Json json_of(const std::vector<std::pair<std::string, double>>& pattern, bool whole) {
  Json json = Json::object();
  for (const auto& [expression, number] : pattern) {
    json[expression] = whole ? Json(static_cast<int64_t>(number)) : Json(number);
  }
  return json;
}

// A list if all expressions are names, otherwise one expression.
Json json_of(const std::vector<std::string>& expressions) {
  if (std::ranges::all_of(expressions, is_name)) {
    std::vector<std::string> names;
    for (const std::string& expression : expressions) names.push_back(*name_of_expression(expression));
    return names;
  }
  const std::string expression = joined(expressions, "|");
  if (expressions.size() == 1 && expression.starts_with("(.*\\.)?(") && expression.ends_with(")")) return expression;
  return fmt::format("(.*\\.)?({})", expression);
}

const std::pair<const char*, AdaptedBiases> kBiasWords[] = {
    {"none", AdaptedBiases::none}, {"all", AdaptedBiases::all}, {"lora_only", AdaptedBiases::lora_only}};

}  // namespace

AdapterOptions parse_adapter_config(std::string_view text, const std::string& where) {
  const Json json = parse_json<Json>(text, where);
  if (!json.is_object()) throw InputError(where, "is not a JSON object");
  const ConfigReader read(json, where);
  if (const std::string type = read.text("peft_type", "LORA"); type != "LORA") {
    throw InputError(where, fmt::format("\"peft_type\" is \"{}\"", printable(type)), "Tessera has only LORA");
  }
  for (const ForeignOption& option : foreign_options()) {
    const Json* value = read.value(option.key);
    if (!value || std::ranges::find(option.neutral, *value) != option.neutral.end()) continue;
    throw InputError(where, fmt::format("\"{}\" is {}: {}", option.key, in_words(*value), option.meaning),
                     "Tessera does not have this option, which changes what the adapter computes");
  }
  AdapterOptions options;
  options.rank = read.integer({"r"}, 8, 1, kMaxAdapterRank);
  options.alpha = read.number({"lora_alpha"}, 8, 0, kMaxScale);
  options.dropout = read.number({"lora_dropout"}, 0, 0, 0.999);
  options.rank_stabilized = read.boolean("use_rslora", false);
  options.targets = expressions(read, "target_modules");
  if (options.targets == std::vector<std::string>{kAllLinear}) options.targets.clear();
  options.excluded = expressions(read, "exclude_modules");
  options.whole = texts(read, "modules_to_save");
  options.ranks = pattern(read, "rank_pattern", 1);
  options.alphas = pattern(read, "alpha_pattern", 0);
  if (const Json* layers = read.value("layers_to_transform")) {
    const Json list = layers->is_number() ? Json::array({*layers}) : *layers;
    if (!list.is_array() || !std::ranges::all_of(list, [](const Json& one) { return one.is_number_integer(); })) {
      refuse(where, "layers_to_transform", *layers, "a list of numbers");
    }
    for (const Json& one : list) options.layers.push_back(one.get<int64_t>());
  }
  const std::string biases = read.text("bias", "none");
  const auto known = std::ranges::find(kBiasWords, biases, [](const auto& entry) { return std::string(entry.first); });
  if (known == std::end(kBiasWords)) refuse(where, "bias", json["bias"], "none, all or lora_only");
  options.biases = known->second;
  return options;
}

Json adapter_to_json(const AdapterOptions& options) {
  const auto biases = std::ranges::find(kBiasWords, options.biases, [](const auto& entry) { return entry.second; });
  return {{"r", options.rank},
          {"lora_alpha", options.alpha},
          {"lora_dropout", options.dropout},
          {"use_rslora", options.rank_stabilized},
          {"target_modules", options.targets.empty() ? Json(kAllLinear) : json_of(options.targets)},
          {"exclude_modules", options.excluded.empty() ? Json() : json_of(options.excluded)},
          {"layers_to_transform", options.layers.empty() ? Json() : Json(options.layers)},
          {"rank_pattern", json_of(options.ranks, true)},
          {"alpha_pattern", json_of(options.alphas, false)},
          {"modules_to_save", options.whole.empty() ? Json() : Json(options.whole)},
          {"bias", biases->first}};
}

std::string adapter_config_json(const AdapterOptions& options, const std::vector<std::string>& layers,
                                const std::string& base) {
  nlohmann::json json = nlohmann::json::parse(adapter_to_json(options).dump());  // sorted keys, as PEFT writes them
  if (!layers.empty() && options.targets.empty() && options.excluded.empty()) {
    std::set<std::string> names;
    for (const std::string& path : layers) names.insert(path.substr(path.rfind('.') + 1));
    json["target_modules"] = names;
  } else if (!layers.empty() && (options.targets.empty() || !std::ranges::all_of(options.targets, is_name))) {
    // PEFT cannot combine an expression with other options. The complete paths mean the same.
    json["target_modules"] = layers;
    json["exclude_modules"] = json["layers_to_transform"] = nullptr;
  }
  // PEFT reads a whole number as int, which a float must not become.
  if (options.alpha == std::floor(options.alpha)) json["lora_alpha"] = static_cast<int64_t>(options.alpha);
  json.update({{"peft_type", "LORA"},
               {"task_type", "CAUSAL_LM"},
               {"base_model_name_or_path", base.empty() ? nlohmann::json() : nlohmann::json(base)},
               {"inference_mode", true},
               {"revision", nullptr},
               {"fan_in_fan_out", false},
               {"init_lora_weights", true},
               {"layers_pattern", nullptr},
               {"auto_mapping", nullptr}});
  return json.dump(2) + "\n";
}

}  // namespace tessera
