#include "tessera/model/config.h"

#include <fmt/format.h>

#include "tessera/base/error.h"
#include "tessera/base/json.h"
#include "tessera/base/read_file.h"
#include "tessera/ops/dropout_mask.h"
#include "tessera/ops/kernels.h"

namespace tessera {

using Json = nlohmann::ordered_json;

namespace {

constexpr int64_t kMaxDimension = int64_t{1} << 24;  // far above any model; a product of two still fits into 64 bits
constexpr const char* kOwn = "Use the model's own config.json";

// A value for an error message. Containers are not printed: printing recurses, and a file may contain a long one.
std::string in_words(const Json& value) {
  if (value.is_structured()) return std::string("an ") + value.type_name();
  const std::string text = value.dump();
  return text.size() <= 80 ? text : fmt::format("a text of {} bytes", text.size());
}

// Reads one object: typed look-ups under any of the common spellings, with errors that name key and value.
class Reader {
 public:
  Reader(const Json& json, const std::string& where) : json_(json), where_(where) {}

  bool has(const char* name) const {
    const char* key = nullptr;
    return find({name}, key) != nullptr;
  }

  int64_t integer(std::initializer_list<const char*> keys, int64_t fallback, int64_t low, int64_t high) const {
    const char* key = nullptr;
    const Json* value = find(keys, key);
    if (!value) {
      if (fallback >= 0) return fallback;
      throw InputError(where_, fmt::format("the key \"{}\" is missing", *keys.begin()), kOwn);
    }
    if (!value->is_number_integer() || *value < low || *value > high) {
      throw InputError(where_,
                       fmt::format("\"{}\" is {}, not a whole number from {} to {}", key, in_words(*value), low, high));
    }
    return value->get<int64_t>();
  }

  double number(std::initializer_list<const char*> keys, double fallback, double low, double high) const {
    const char* key = nullptr;
    const Json* value = find(keys, key);
    if (!value) return fallback;
    if (!value->is_number() || !(value->get<double>() >= low && value->get<double>() <= high)) {
      throw InputError(where_,
                       fmt::format("\"{}\" is {}, not a number from {} to {}", key, in_words(*value), low, high));
    }
    return value->get<double>();
  }

  bool boolean(const char* name, bool fallback) const {
    const char* key = nullptr;
    const Json* value = find({name}, key);
    if (!value) return fallback;
    if (!value->is_boolean())
      throw InputError(where_, fmt::format("\"{}\" is {}, not true or false", key, in_words(*value)));
    return value->get<bool>();
  }

 private:
  const Json* find(std::initializer_list<const char*> keys, const char*& found) const {
    for (const char* key : keys) {
      found = key;
      if (const auto it = json_.find(key); it != json_.end() && !it->is_null()) return &*it;
    }
    return nullptr;
  }

  const Json& json_;
  const std::string& where_;
};

}  // namespace

ModelConfig parse_model_config(std::string_view text, const std::string& where) {
  const Json json = parse_json<Json>(text, where, kOwn);
  if (!json.is_object()) throw InputError(where, "not a JSON object", kOwn);
  const auto type = json.find("model_type");
  const std::string model_type = type != json.end() && type->is_string() ? type->get<std::string>() : "";
  if (model_type != "bloom" && model_type != "gpt") {
    throw InputError(where, fmt::format("\"model_type\" is {}", type == json.end() ? "missing" : in_words(*type)),
                     "Tessera supports \"bloom\" and \"gpt\"");
  }
  const Reader read(json, where);
  ModelConfig config;
  config.architecture = model_type;
  config.original_json = text;
  config.tied_head = read.boolean("tie_word_embeddings", true);
  config.vocab_size = read.integer({"vocab_size"}, -1, 1, INT32_MAX);
  config.hidden_size = read.integer({"hidden_size", "n_embed", "n_embd"}, -1, 1, kMaxDimension);
  config.num_layers = read.integer({"n_layer", "num_hidden_layers", "num_layers"}, -1, 1, 100000);
  config.num_heads = read.integer({"n_head", "num_attention_heads", "num_heads"}, -1, 1, kMaxDimension);
  config.ff_dim = read.integer({"ff_dim"}, 4 * config.hidden_size, 1, kMaxDimension * 4);
  config.layer_norm_epsilon = read.number({"layer_norm_epsilon"}, 1e-5, 1e-30, 1);
  config.initializer_range = read.number({"initializer_range"}, 0.02, 0, 1e6);
  config.residual_from_norm = read.boolean("apply_residual_connection_post_layernorm", false);
  config.hidden_dropout = read.number({"hidden_dropout", "dropout"}, 0, 0, 0.999);
  config.attention_dropout = read.number({"attention_dropout", "dropout"}, 0, 0, 0.999);
  const int64_t last_id = config.vocab_size - 1;
  config.unk_token_id = static_cast<int32_t>(read.integer({"unk_token_id"}, std::min<int64_t>(0, last_id), 0, last_id));
  config.bos_token_id = static_cast<int32_t>(read.integer({"bos_token_id"}, std::min<int64_t>(1, last_id), 0, last_id));
  if (read.has("eos_token_id")) {
    config.eos_token_id = static_cast<int32_t>(read.integer({"eos_token_id"}, 0, 0, last_id));
  }
  config.pad_token_id = static_cast<int32_t>(read.integer({"pad_token_id"}, std::min<int64_t>(3, last_id), 0, last_id));
  if (const std::string fault = fault_of(config); !fault.empty()) throw InputError(where, fault);
  return config;
}

ModelConfig read_model_config(const std::filesystem::path& path) {
  const ReadOptions options{
      .remedy = "A model is a Hugging Face folder with config.json, model.safetensors and tokenizer.json",
      .longest_bytes = 16 << 20};
  return parse_model_config(read_file(path, options), path.string());
}

std::string fault_of(const ModelConfig& config) {
  for (const auto& [name, value] :
       {std::pair{"vocab_size", config.vocab_size}, std::pair{"hidden_size", config.hidden_size},
        std::pair{"num_layers", config.num_layers}, std::pair{"num_heads", config.num_heads},
        std::pair{"ff_dim", config.ff_dim}}) {
    if (value < 1) return fmt::format("{} is {}, not a positive number", name, value);
  }
  if (config.hidden_size % config.num_heads != 0) {
    return fmt::format("hidden_size {} is not a multiple of the {} heads", config.hidden_size, config.num_heads);
  }
  if (config.head_dim() > kMaxHeadDim) {
    return fmt::format("hidden_size {} over {} heads makes heads of {} channels, but attention supports at most {}",
                       config.hidden_size, config.num_heads, config.head_dim(), kMaxHeadDim);
  }
  if (config.hidden_size > kMaxNormChannels) {
    return fmt::format("hidden_size is {}, but norms support at most {} channels", config.hidden_size,
                       kMaxNormChannels);
  }
  if (config.hidden_size > kMaxAnyNormChannels && config.hidden_size % 8 != 0) {
    return fmt::format("hidden_size is {}, but above {} it must be a multiple of 8", config.hidden_size,
                       kMaxAnyNormChannels);
  }
  if (config.attention_dropout > 0 && config.num_heads > kMaxDropoutHeads) {
    return fmt::format("attention_dropout is {} with {} heads, but dropout supports at most {} heads",
                       config.attention_dropout, config.num_heads, kMaxDropoutHeads);
  }
  const auto C = static_cast<double>(config.hidden_size);
  const double parameters =
      (config.tied_head ? 1 : 2) * static_cast<double>(config.vocab_size) * C +
      static_cast<double>(config.num_layers) * C * (4 * C + 2 * static_cast<double>(config.ff_dim));
  if (parameters > 1e15)
    return fmt::format("its sizes give {:.1e} parameters, more than fits into any machine", parameters);
  if (config.architecture == "bloom" && config.ff_dim != 4 * config.hidden_size) {
    return fmt::format("ff_dim is {}, but BLOOM's feed-forward layer has 4 x hidden_size = {} channels", config.ff_dim,
                       4 * config.hidden_size);
  }
  return "";
}

namespace {

struct KnownModel {
  const char* name;
  int64_t hidden_size, num_layers, num_heads;
};
// Source: the config.json files of bigscience/bloom-*.
constexpr KnownModel kKnownModels[] = {
    {"bloom-560m", 1024, 24, 16}, {"bloom-1b1", 1536, 24, 16}, {"bloom-1b7", 2048, 24, 16},
    {"bloom-3b", 2560, 30, 32},   {"bloom-7b1", 4096, 30, 32}, {"bloom-176b", 14336, 70, 112},
};

}  // namespace

std::vector<std::string> known_model_names() {
  std::vector<std::string> names;
  for (const KnownModel& model : kKnownModels) names.emplace_back(model.name);
  return names;
}

bool find_known_model(std::string_view name, ModelConfig& config) {
  for (const KnownModel& model : kKnownModels) {
    if (name != model.name) continue;
    config = {};
    config.vocab_size = 250880;
    config.hidden_size = model.hidden_size;
    config.num_layers = model.num_layers;
    config.num_heads = model.num_heads;
    config.ff_dim = 4 * model.hidden_size;
    return true;
  }
  return false;
}

std::string model_config_json(const ModelConfig& config, DType dtype) {
  Json json = Json::object();
  if (!config.original_json.empty()) json = parse_json<Json>(config.original_json, "the model's config.json");
  const char* dtype_name = dtype == DType::f32 ? "float32" : dtype == DType::bf16 ? "bfloat16" : "float16";
  if (json.contains("dtype"))
    json["dtype"] = dtype_name;
  else
    json["torch_dtype"] = dtype_name;
  json["model_type"] = config.architecture;
  const auto set_default = [&](const char* key, const Json& value) {
    if (!json.contains(key)) json[key] = value;
  };
  set_default("vocab_size", config.vocab_size);
  if (!config.tied_head) set_default("tie_word_embeddings", false);
  if (config.architecture == "bloom") {
    set_default("architectures", Json::array({"BloomForCausalLM"}));
    if (!json.contains("n_embed")) set_default("hidden_size", config.hidden_size);
    if (!json.contains("num_hidden_layers")) set_default("n_layer", config.num_layers);
    if (!json.contains("num_attention_heads")) set_default("n_head", config.num_heads);
    set_default("layer_norm_epsilon", config.layer_norm_epsilon);
    set_default("initializer_range", config.initializer_range);
    set_default("apply_residual_connection_post_layernorm", config.residual_from_norm);
    set_default("hidden_dropout", config.hidden_dropout);
    set_default("attention_dropout", config.attention_dropout);
    set_default("use_cache", true);
  } else {
    set_default("hidden_size", config.hidden_size);
    set_default("num_layers", config.num_layers);
    set_default("num_heads", config.num_heads);
    set_default("ff_dim", config.ff_dim);
    set_default("dropout", config.hidden_dropout);
  }
  set_default("unk_token_id", config.unk_token_id);
  set_default("bos_token_id", config.bos_token_id);
  if (config.eos_token_id >= 0) set_default("eos_token_id", config.eos_token_id);
  set_default("pad_token_id", config.pad_token_id);
  return json.dump(2) + "\n";
}

}  // namespace tessera
