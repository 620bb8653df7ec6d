#include "tessera/model/config.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/base/read_file.h"
#include "tessera/model/adapter_config.h"
#include "tessera/model/architecture.h"
#include "tessera/model/config_reader.h"
#include "tessera/ops/dropout_mask.h"
#include "tessera/ops/kernels.h"

namespace tessera {

namespace {

bool is_id(const Json& value, int64_t vocab_size) {
  return value.is_number_integer() && value >= 0 && value < vocab_size;
}

std::string id_fault(const char* key, const char* verb, const Json& value, int64_t vocab_size) {
  return fmt::format("\"{}\" {} {}, not a whole number from 0 to {}", key, verb, in_words(value), vocab_size - 1);
}

std::string note_of(const ConfigReader& read, const std::string& fault) {
  return fmt::format("{}: {}. Tessera ignores this value", read.where(), fault);
}

void read_token_ids(const ConfigReader& read, ModelConfig& config) {
  config.unk_token_id = read_token_id(read, "unk_token_id", config.vocab_size, config.notes);
  config.bos_token_id = read_token_id(read, "bos_token_id", config.vocab_size, config.notes);
  config.pad_token_id = read_token_id(read, "pad_token_id", config.vocab_size, config.notes);
  const std::vector<int32_t> ids = read_end_ids(read, config.vocab_size, config.notes);
  if (ids.empty()) {
    const Json* value = read.value("eos_token_id");
    if (value && *value != Json::array()) {
      config.end_fault = id_fault("eos_token_id", "is", *value, config.vocab_size);
    }
    return;
  }
  config.eos_token_id = ids[0];
  config.more_end_ids.assign(ids.begin() + 1, ids.end());
}

}  // namespace

std::vector<int32_t> read_end_ids(const ConfigReader& read, int64_t vocab_size, std::vector<std::string>& notes) {
  std::vector<int32_t> ids;
  const Json* value = read.value("eos_token_id");
  if (!value) return ids;
  for (const Json& id : value->is_array() ? *value : Json::array({*value})) {
    if (is_id(id, vocab_size))
      ids.push_back(id.get<int32_t>());
    else
      notes.push_back(note_of(read, id_fault("eos_token_id", value->is_array() ? "contains" : "is", id, vocab_size)));
  }
  return ids;
}

int32_t read_token_id(const ConfigReader& read, const char* key, int64_t vocab_size, std::vector<std::string>& notes) {
  const Json* value = read.value(key);
  if (!value) return -1;
  if (is_id(*value, vocab_size)) return value->get<int32_t>();
  notes.push_back(note_of(read, id_fault(key, "is", *value, vocab_size)));
  return -1;
}

ModelConfig parse_model_config(std::string_view text, const std::string& where) {
  const Json json = parse_json<Json>(text, where, kOwn);
  if (!json.is_object()) throw InputError(where, "is not a JSON object", kOwn);
  const ConfigReader read(json, where);
  ModelConfig config;
  config.original_json = text;
  const Json* type = read.value("model_type");
  config.architecture = type && type->is_string() ? type->get<std::string>() : "";
  const Architecture* architecture = find_architecture(config.architecture);
  if (!architecture) {
    throw InputError(where, fmt::format("\"model_type\" is {}", type ? in_words(*type) : "missing"),
                     "Tessera supports " + supported_types());
  }
  check_config_keys(json, *architecture, where, config.notes);
  config.vocab_size = read.integer({"vocab_size"}, -1, 1, INT32_MAX);
  // transformers omits this key if its value is the default of the architecture.
  config.tied_head = read.boolean("tie_word_embeddings", architecture->tied_by_default);
  architecture->read(read, config);
  read_token_ids(read, config);
  if (const Json* value = read.value("quantization_config"); value && *value != false)
    config.quantization = parse_quantization(*value, where);
  if (const std::string fault = fault_of(config); !fault.empty()) throw InputError(where, fault);
  return config;
}

ModelConfig read_model_config(const std::filesystem::path& path) {
  const ReadOptions options{
      .remedy = "A model is a Hugging Face folder with config.json, model.safetensors and tokenizer.json",
      .longest_bytes = 16 << 20};
  return parse_model_config(read_file(path, options), path.string());
}

namespace {

std::string fault_of_heads(const ModelConfig& config) {
  const int64_t C = config.hidden_size, H = config.num_heads, K = config.kv_heads(), D = config.head_dim();
  if (config.head_channels == 0 && C % H != 0) {
    return fmt::format("hidden_size {} is not a multiple of the {} heads", C, H);
  }
  if (D > kMaxHeadDim && config.head_channels == 0) {
    return fmt::format("hidden_size {} with {} heads gives heads of {} channels, but attention supports at most {}", C,
                       H, D, kMaxHeadDim);
  }
  if (D > kMaxHeadDim) {
    return fmt::format("head_dim is {}, but attention supports at most {} channels", D, kMaxHeadDim);
  }
  if (H % K != 0) {
    return fmt::format("num_attention_heads {} is not a multiple of num_key_value_heads {}", H, K);
  }
  if (config.attention_dropout > 0 && H > kMaxDropoutHeads) {
    return fmt::format("attention_dropout is {} with {} heads, but dropout supports at most {} heads",
                       config.attention_dropout, H, kMaxDropoutHeads);
  }
  return "";
}

}  // namespace

std::string fault_of(const ModelConfig& config) {
  for (const auto& [name, value] :
       {std::pair{"vocab_size", config.vocab_size}, std::pair{"hidden_size", config.hidden_size},
        std::pair{"num_layers", config.num_layers}, std::pair{"num_heads", config.num_heads},
        std::pair{"ff_dim", config.ff_dim}}) {
    if (value < 1) return fmt::format("{} is {}, not a positive number", name, value);
  }
  if (config.num_layers > kMaxLayers) {
    return fmt::format("num_layers is {}, but a model may have at most {}", config.num_layers, kMaxLayers);
  }
  if (std::string fault = fault_of_heads(config); !fault.empty()) return fault;
  if (config.hidden_size > kMaxNormChannels) {
    return fmt::format("hidden_size is {}, but norms support at most {} channels", config.hidden_size,
                       kMaxNormChannels);
  }
  if (config.hidden_size > kMaxAnyNormChannels && config.hidden_size % 8 != 0) {
    return fmt::format("hidden_size is {}, but above {} it must be a multiple of 8", config.hidden_size,
                       kMaxAnyNormChannels);
  }
  const double embeddings = static_cast<double>(config.vocab_size) * static_cast<double>(config.hidden_size);
  const Architecture& architecture = architecture_of(config);
  const double parameters = (config.tied_head ? 1 : 2) * embeddings +
                            static_cast<double>(config.num_layers) * architecture.parameters_of_block(config);
  if (parameters > 1e15)
    return fmt::format("the model would have {:.1e} parameters, too many for any machine", parameters);
  return architecture.fault_of ? architecture.fault_of(config) : "";
}

namespace {

// Sets all keys that name the type of the weights, also those in objects inside the configuration.
void set_dtype(Json& json, const char* dtype) {
  for (auto& [key, value] : json.items()) {
    if (key == "dtype" || key == "torch_dtype")
      value = dtype;
    else if (value.is_object())
      set_dtype(value, dtype);
  }
}

// The value of "eos_token_id" in a file to save, which had the value `before`. All end tokens of the file remain. The
// token that ended the texts in training comes first, unless the file has it already.
Json end_ids_to_save(const Json& before, int32_t end_id) {
  const Json ids = before.is_array() ? before : before.is_null() ? Json::array() : Json::array({before});
  if (std::ranges::find(ids, Json(end_id)) != ids.end()) return before;
  Json all = Json::array({end_id});
  for (const Json& id : ids) {
    if (id.is_number_integer() && id >= 0) all.push_back(id);
  }
  return all.size() == 1 ? all[0] : all;
}

}  // namespace

void add_end_id(Json& file, int32_t end_id) {
  if (end_id >= 0) file["eos_token_id"] = end_ids_to_save(file.value("eos_token_id", Json()), end_id);
}

std::string model_config_json(const ModelConfig& config, DType dtype) {
  Json json = Json::object();
  if (!config.original_json.empty()) json = parse_json<Json>(config.original_json, "the model's config.json");
  if (!json.contains("dtype")) json.emplace("torch_dtype", nullptr);
  set_dtype(json, dtype == DType::f32 ? "float32" : dtype == DType::bf16 ? "bfloat16" : "float16");
  json["model_type"] = config.architecture;
  json["vocab_size"] = config.vocab_size;
  architecture_of(config).write(config, json);
  for (const auto& [key, id] :
       {std::pair{"unk_token_id", config.unk_token_id}, std::pair{"bos_token_id", config.bos_token_id},
        std::pair{"pad_token_id", config.pad_token_id}}) {
    if (id >= 0) set_default(json, key, id);
  }
  add_end_id(json, config.eos_token_id);
  json.erase("quantization_config");
  if (config.quantization) json["quantization_config"] = quantization_json(*config.quantization);
  return json.dump(2) + "\n";
}

Json model_fingerprint(const ModelConfig& config) {
  Json fingerprint{{"architecture", config.architecture},
                   {"vocab_size", config.vocab_size},
                   {"hidden_size", config.hidden_size},
                   {"num_layers", config.num_layers},
                   {"num_heads", config.num_heads},
                   {"ff_dim", config.ff_dim},
                   {"layer_norm_epsilon", config.layer_norm_epsilon},
                   {"residual_from_norm", config.residual_from_norm},
                   {"head", config.tied_head ? "" : "untied"}};
  const Architecture& architecture = architecture_of(config);
  if (architecture.add_to_fingerprint) architecture.add_to_fingerprint(config, fingerprint);
  if (config.adapter) fingerprint["adapter"] = adapter_to_json(*config.adapter);
  if (config.quantization) fingerprint["base"] = quantization_json(*config.quantization);
  return fingerprint;
}

}  // namespace tessera
