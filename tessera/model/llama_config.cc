// In config.json, a missing key has the default of transformers. Exception: hidden_size, intermediate_size,
// num_hidden_layers and num_attention_heads must be given.
#include "tessera/model/llama_config.h"

#include <algorithm>

#include "tessera/base/counted.h"
#include "tessera/model/config_reader.h"
#include "tessera/model/llama.h"

namespace tessera {
namespace {

constexpr int64_t kDefaultWindow = 4096, kDefaultMaxWindowLayers = 28;

Activation read_activation(const ConfigReader& read) {
  const std::string name = read.text("hidden_act", "silu");
  if (name == "silu" || name == "swish") return Activation::silu;
  if (name == "gelu_pytorch_tanh" || name == "gelu_new") return Activation::gelu_tanh;
  throw InputError(read.where(), fmt::format("\"hidden_act\" is {}", in_words(Json(name))),
                   "Tessera supports \"silu\" (or \"swish\") and \"gelu_pytorch_tanh\" (or \"gelu_new\")");
}

// Reads the scaling of rotary positions. `parameters` is the object "rope_parameters" or "rope_scaling".
void read_scaling(const ConfigReader& all, const ConfigReader& parameters, const std::string& type, Rope& rope) {
  constexpr double kMost = 1e9;
  const double max_positions = static_cast<double>(all.integer({"max_position_embeddings"}, 0, 0, INT32_MAX));
  if (type != "linear") {
    rope.original_positions = parameters.number({"original_max_position_embeddings"}, max_positions, 1, kMost);
    // If config.json also has this key outside `parameters`, transformers prefers that value.
    rope.original_positions = all.number({"original_max_position_embeddings"}, rope.original_positions, 1, kMost);
  }
  const auto required = [&](const char* key, double low, double high) {
    if (parameters.has(key)) return parameters.number({key}, 0, low, high);
    throw InputError(parameters.where(), fmt::format("the key \"{}\" is missing for rope type \"{}\"", key, type),
                     kOwn);
  };
  if (type == "yarn" && !parameters.has("factor"))
    rope.factor = max_positions / rope.original_positions;
  else
    rope.factor = required("factor", 1e-6, kMost);
  if (type == "linear") {
    rope.scaling = Rope::Scaling::linear;
  } else if (type == "llama3") {
    rope.scaling = Rope::Scaling::llama3;
    rope.low_freq_factor = required("low_freq_factor", 1e-6, kMost);
    rope.high_freq_factor = required("high_freq_factor", 1e-6, kMost);
    if (rope.high_freq_factor <= rope.low_freq_factor) {
      throw InputError(parameters.where(), fmt::format("\"high_freq_factor\" is {}, not above \"low_freq_factor\" {}",
                                                       rope.high_freq_factor, rope.low_freq_factor));
    }
  } else {
    rope.scaling = Rope::Scaling::yarn;
    // As in transformers, 0 means the default.
    const auto or_default = [](double value, double fallback) { return value == 0 ? fallback : value; };
    rope.beta_fast = or_default(parameters.number({"beta_fast"}, 0, 0, kMost), 32);
    rope.beta_slow = or_default(parameters.number({"beta_slow"}, 0, 0, kMost), 1);
    rope.truncates = parameters.boolean("truncate", true);
    const double mscale = parameters.number({"mscale"}, 0, 0, kMost),
                 mscale_all_dim = parameters.number({"mscale_all_dim"}, 0, 0, kMost);
    rope.attention_factor = parameters.number({"attention_factor"},
                                              yarn_attention_factor(rope.factor, mscale, mscale_all_dim), 1e-6, kMost);
  }
}

// The object that describes the rotary positions: "rope_parameters", or "rope_scaling" of older versions of
// transformers. nullptr if the model has neither.
const Json* rope_object(const ConfigReader& read, const char*& key) {
  const Json* found = nullptr;
  for (const char* name : {"rope_scaling", "rope_parameters"}) {
    const Json* value = read.value(name);
    if (value && !value->is_object()) {
      throw InputError(read.where(), fmt::format("\"{}\" is {}, not an object", name, in_words(*value)), kOwn);
    }
    if (!value || value->empty()) continue;
    if (found && *found != *value) {
      throw InputError(read.where(), "\"rope_scaling\" and \"rope_parameters\" differ",
                       "Put all keys into \"rope_parameters\", and remove \"rope_scaling\"");
    }
    found = value;
    key = name;
  }
  return found;
}

std::string rope_type_of(const ConfigReader& parameters) {
  const std::string type = parameters.text("type", "default"), rope_type = parameters.text("rope_type", type.c_str());
  if (parameters.has("type") && type != rope_type) {
    throw InputError(
        parameters.where(),
        fmt::format("\"rope_type\" is {}, but \"type\" is {}", in_words(Json(rope_type)), in_words(Json(type))),
        "Both keys mean the same: remove \"type\"");
  }
  if (rope_type != "default" && rope_type != "linear" && rope_type != "llama3" && rope_type != "yarn") {
    throw InputError(parameters.where(), fmt::format("\"rope_type\" is {}", in_words(Json(rope_type))),
                     "Tessera supports \"default\", \"linear\", \"llama3\" and \"yarn\"");
  }
  return rope_type;
}

void read_rope(const ConfigReader& read, Rope& rope, std::vector<std::string>& notes) {
  // Newer versions of transformers write "rope_parameters". Older versions write "rope_theta" and "rope_scaling".
  constexpr double kMostTheta = 1e12;
  rope.theta = read.number({"rope_theta"}, rope.theta, 1.0001, kMostTheta);
  const char* key = nullptr;
  const Json* object = rope_object(read, key);
  if (!object) return;
  const std::string where = fmt::format("{}: \"{}\"", read.where(), key);
  const ConfigReader parameters(*object, where);
  const std::string type = rope_type_of(parameters);
  check_rope_keys(*object, type, where);
  const double outer = rope.theta;
  rope.theta = parameters.number({"rope_theta"}, outer, 1.0001, kMostTheta);
  if (read.has("rope_theta") && rope.theta != outer) {  // as in transformers
    notes.push_back(fmt::format("{}: \"rope_theta\" is {}, and {} inside \"{}\". The latter counts", read.where(),
                                outer, rope.theta, key));
  }
  if (type != "default") read_scaling(read, parameters, type, rope);
}

// Which layers "layer_types" gives a window, or `fallback` if the key is missing.
std::vector<bool> read_layer_types(const ConfigReader& read, std::vector<bool> fallback) {
  const Json* types = read.value("layer_types");
  if (!types || *types == Json::array()) return fallback;
  if (!types->is_array() || types->size() != fallback.size()) {
    throw InputError(read.where(),
                     fmt::format("\"layer_types\" is not a list of {} entries, one per layer", fallback.size()), kOwn);
  }
  std::vector<bool> slides;
  for (const Json& layer : *types) {
    if (layer != "full_attention" && layer != "sliding_attention") {
      throw InputError(read.where(), fmt::format("\"layer_types\" contains {}", in_words(layer)),
                       "Tessera supports \"full_attention\" and \"sliding_attention\"");
    }
    slides.push_back(layer == "sliding_attention");
  }
  return slides;
}

// The names of the types that can have layers with and without a window: "qwen2 and qwen3".
std::string types_with_layer_windows() {
  std::vector<std::string> names;
  for (const Architecture* row : architectures()) {
    if (row->family_keys == llama_keys && row->key_traits & LlamaType::kLayerWindows) names.emplace_back(row->name);
  }
  return listed(names);
}

void read_windows(const ConfigReader& read, const LlamaType& type, ModelConfig& config) {
  const auto num_layers = static_cast<size_t>(config.num_layers);
  // null means no window. A missing key means the default.
  const bool may_slide = type.window != LlamaType::Window::never, is_null = read.is_null("sliding_window");
  const int64_t window = is_null || !may_slide ? 0 : read.integer({"sliding_window"}, kDefaultWindow, 1, INT32_MAX);
  if (type.window != LlamaType::Window::some_layers) {
    const std::vector<bool> computed(num_layers, window > 0);
    if (read_layer_types(read, computed) != computed) {
      throw InputError(read.where(),
                       fmt::format("\"layer_types\" contains \"{}\", but models of type \"{}\" {}",
                                   window > 0 ? "full_attention" : "sliding_attention", type.name,
                                   window > 0 ? "have the window of \"sliding_window\" in all layers"
                                              : "have no window in this configuration"),
                       fmt::format("Tessera and transformers support layers of both kinds in models of type {}",
                                   types_with_layer_windows()));
    }
    config.sliding_window = window;
    return;
  }
  const bool uses = read.boolean("use_sliding_window", false);
  const int64_t first = read.integer({"max_window_layers"}, kDefaultMaxWindowLayers, 0, kMaxLayers);
  std::vector<bool> slides;
  for (int64_t i = 0; i < config.num_layers; ++i) slides.push_back(uses && window > 0 && i >= first);
  slides = read_layer_types(read, std::move(slides));
  if (std::ranges::find(slides, true) == slides.end()) return;
  if (!uses || window == 0) {
    throw InputError(read.where(),
                     uses ? "\"layer_types\" has sliding layers, but \"sliding_window\" is null"
                          : "\"layer_types\" has sliding layers, but \"use_sliding_window\" is false",
                     kOwn);
  }
  config.sliding_window = window;
  config.sliding_layers = std::move(slides);
}

// The longest sequence that the positions of the model cover, in tokens.
int64_t longest_row(const Rope& rope, int64_t max_positions) {
  switch (rope.scaling) {
    case Rope::Scaling::none:
    case Rope::Scaling::llama3:
      return max_positions;
    case Rope::Scaling::linear:
      return static_cast<int64_t>(static_cast<double>(max_positions) * std::max(rope.factor, 1.0));
    case Rope::Scaling::yarn:
      return std::max(max_positions, static_cast<int64_t>(rope.original_positions * rope.factor));
  }
  return max_positions;
}

}  // namespace

void read_llama_config(const LlamaType& type, const ConfigReader& read, ModelConfig& config) {
  config.hidden_size = read.integer({"hidden_size"}, -1, 1, kMaxDimension);
  config.num_layers = read.integer({"num_hidden_layers"}, -1, 1, kMaxLayers);
  config.num_heads = read.integer({"num_attention_heads"}, -1, 1, kMaxDimension);
  config.ff_dim = read.integer({"intermediate_size"}, -1, 1, kMaxDimension * 4);
  // If num_key_value_heads is null, there are as many heads of keys as heads of queries. If it is missing, the default
  // of the model type applies.
  const int64_t most_heads = config.num_heads;
  config.num_kv_heads = read.is_null("num_key_value_heads") || type.kv_heads == 0 ? most_heads : type.kv_heads;
  config.num_kv_heads = read.integer({"num_key_value_heads"}, config.num_kv_heads, 1, kMaxDimension);
  const int64_t fallback = read.is_null("head_dim") ? 0 : type.head_dim;
  config.head_channels = read.integer({"head_dim"}, fallback, 1, kMaxDimension);
  config.layer_norm_epsilon = read.number({"rms_norm_eps"}, 1e-6, 1e-30, 1);
  config.initializer_range = read.number({"initializer_range"}, 0.02, 0, 1e6);
  config.attention_dropout = read.number({"attention_dropout"}, 0, 0, 0.999);
  config.activation = read_activation(read);
  const bool attention_bias = type.may_have_biases && read.boolean("attention_bias", false);
  config.qkv_bias = type.biases_always || attention_bias;
  config.o_bias = attention_bias;
  config.mlp_bias = type.may_have_mlp_bias && read.boolean("mlp_bias", false);
  config.head_norms = type.head_norms;
  read_rope(read, config.rope, config.notes);
  const int64_t max_positions = read.integer({"max_position_embeddings"}, type.max_positions, 1, INT32_MAX);
  config.max_positions = longest_row(config.rope, max_positions);
  read_windows(read, type, config);
}

void write_llama_config(const LlamaType& type, const ModelConfig& config, Json& json) {
  set_default(json, "architectures", Json::array({type.class_name}));
  set_default(json, "hidden_size", config.hidden_size);
  set_default(json, "intermediate_size", config.ff_dim);
  set_default(json, "num_hidden_layers", config.num_layers);
  set_default(json, "num_attention_heads", config.num_heads);
  set_default(json, "num_key_value_heads", config.kv_heads());
  set_default(json, "head_dim", config.head_dim());
  set_default(json, "hidden_act", config.activation == Activation::silu ? "silu" : "gelu_pytorch_tanh");
  set_default(json, "rms_norm_eps", config.layer_norm_epsilon);
  set_default(json, "initializer_range", config.initializer_range);
  set_default(json, "attention_dropout", config.attention_dropout);
  set_default(json, "tie_word_embeddings", config.tied_head);
  if (type.may_have_biases) set_default(json, "attention_bias", config.o_bias);
  if (type.may_have_mlp_bias) set_default(json, "mlp_bias", config.mlp_bias);
  if (!json.contains("rope_parameters")) set_default(json, "rope_theta", config.rope.theta);
  // Without a config.json, the model was chosen by a name such as llama-3.2-1b. Models with such a name have no sliding
  // window. Their rotary positions have the llama3 scaling or no scaling.
  TESSERA_ASSERT(!config.original_json.empty() || config.sliding_window == 0);
  if (config.original_json.empty() && config.rope.scaling == Rope::Scaling::llama3) {
    json["rope_scaling"] = {{"rope_type", "llama3"},
                            {"factor", config.rope.factor},
                            {"low_freq_factor", config.rope.low_freq_factor},
                            {"high_freq_factor", config.rope.high_freq_factor},
                            {"original_max_position_embeddings", static_cast<int64_t>(config.rope.original_positions)}};
  }
  if (config.original_json.empty() && type.window == LlamaType::Window::always) json["sliding_window"] = nullptr;
  if (config.original_json.empty()) json["max_position_embeddings"] = config.max_positions;
  set_default(json, "use_cache", true);
}

void add_llama_fingerprint(const ModelConfig& config, Json& fingerprint) {
  fingerprint["num_kv_heads"] = config.kv_heads();
  fingerprint["head_dim"] = config.head_dim();
  fingerprint["activation"] = config.activation == Activation::silu ? "silu" : "gelu_pytorch_tanh";
  fingerprint["biases"] = {config.qkv_bias, config.o_bias, config.mlp_bias};
  fingerprint["rotary"] = rotary_frequencies(config);
  fingerprint["rotary_scale"] = config.rope.attention_factor;
  std::vector<int64_t> windows;
  for (int64_t layer = 0; layer < config.num_layers; ++layer) windows.push_back(config.window_of(layer));
  fingerprint["windows"] = windows;
}

std::string llama_fault(const ModelConfig& config) {
  if (config.head_dim() % 2 == 0) return "";
  return fmt::format("heads have {} channels, but rotary positions need an even number", config.head_dim());
}

double parameters_of_llama_block(const ModelConfig& config) {
  const auto C = static_cast<double>(config.hidden_size), F = static_cast<double>(config.ff_dim);
  return C * (2 * static_cast<double>(config.attention_channels() + config.kv_channels()) + 3 * F);
}

std::vector<float> rotary_frequencies(const ModelConfig& config) {
  return rope_frequencies(config.rope, config.head_dim());
}

void begin_rotary(const ModelConfig& config, View frequencies, Frame& f) {
  f.rotations = f.push_stats(f.batch.num_tokens, config.head_dim());
  // While decoding, each sequence has one new token. Its position is the number of the sequence's tokens in the cache.
  const View positions = f.cache && f.cache->decoding ? f.cache->lengths : f.batch.positions;
  f.ops->rotary_angles(positions, frequencies, config.rope.attention_factor, f.rotations);
}

std::unique_ptr<Block> make_llama_block(const ModelConfig& config, int64_t layer, View) {
  return std::make_unique<LlamaBlock>(config, layer);
}

std::vector<KnownModel> known_llama_models(const LlamaType& type) {
  std::vector<KnownModel> models;
  for (const LlamaShape& shape : type.shapes) {
    ModelConfig config;
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
    config.qkv_bias = type.biases_always;
    config.head_norms = type.head_norms;
    config.rope.theta = shape.theta;
    if (shape.llama3_factor > 0) {
      config.rope.scaling = Rope::Scaling::llama3;
      config.rope.factor = shape.llama3_factor;
      config.rope.original_positions = 8192;
    }
    config.bos_token_id = shape.bos_token_id;
    config.eos_token_id = shape.eos_token_id;
    models.push_back({shape.name, std::move(config)});
  }
  return models;
}

}  // namespace tessera
