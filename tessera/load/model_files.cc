#include "tessera/load/model_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tessera/base/closest_word.h"
#include "tessera/base/counted.h"
#include "tessera/base/option_names.h"
#include "tessera/base/read_file.h"
#include "tessera/base/text.h"
#include "tessera/load/adapter_files.h"
#include "tessera/load/checkpoint_weights.h"
#include "tessera/load/model_place.h"
#include "tessera/load/special_tokens.h"
#include "tessera/store/model_folder.h"
#include "tessera/store/packed_tensors.h"

namespace tessera {

namespace fs = std::filesystem;

namespace {

constexpr uint64_t kMaxCompanionBytes = 64 << 20;

// --model is the name of an architecture whose sizes are settings.
ModelConfig config_with_sizes_of(const Settings& settings) {
  ModelConfig config;
  config.architecture = settings.model;
  config.vocab_size = settings.vocab_size;
  config.hidden_size = settings.hidden_size;
  config.num_layers = settings.num_layers;
  config.num_heads = settings.num_heads;
  config.ff_dim = settings.ff_dim;
  config.hidden_dropout = config.attention_dropout = settings.dropout;
  config.tied_head = settings.tie_word_embeddings;
  if (config.vocab_size == 0 && !settings.tokenizer.empty()) {
    config.vocab_size = Tokenizer::load(tokenizer_file_of(settings)).vocab_size();
  }
  if (config.vocab_size == 0) {
    throw UsageError(option_place("vocab_size"),
                     fmt::format("the model \"{}\" needs the size of its vocabulary", settings.model),
                     "Give --vocab-size, or --tokenizer to use the tokenizer's size");
  }
  if (const std::string fault = fault_of(config); !fault.empty()) {
    throw UsageError(fmt::format("the model \"{}\"", settings.model), fault);
  }
  return config;
}

// Each pattern of --freeze must match a tensor, and at least one tensor must stay trainable.
void check_freeze(const ModelConfig& config, const Settings& settings) {
  const std::vector<std::string> frozen = split_list(settings.freeze);
  if (frozen.empty()) return;
  const auto device = make_counting_device();
  const Model model(config, *device, frozen);
  std::vector<std::string> names;
  const ParameterSpec* before = nullptr;
  for (int64_t u = 0; u < model.num_units(); ++u) {
    for (const ParameterSpec& spec : model.unit(u).table().specs()) {
      if (spec.joined && spec.section != before->section) {
        throw UsageError(option_place("freeze"),
                         fmt::format("\"{}\" freezes only one of {} and {}, which are computed together",
                                     settings.freeze, before->name, spec.name),
                         "Freeze both tensors, or neither of them");
      }
      names.push_back(spec.name);
      before = &spec;
    }
  }
  for (const std::string& pattern : frozen) {
    const auto is_meant = [&](const std::string& name) { return model.matches(pattern, name); };
    if (std::any_of(names.begin(), names.end(), is_meant)) continue;
    const std::string meant = did_you_mean(pattern, names);
    throw UsageError(option_place("freeze"),
                     fmt::format("no tensor of the model has a name like \"{}\"", printable(pattern)),
                     fmt::format("{}{}Use the names in the model's files, such as {} and {}", meant,
                                 meant.empty() ? "" : " ", names.front(), names.back()));
  }
  if (model.num_trainable_parameters() == 0) {
    throw UsageError(option_place("freeze"), fmt::format("\"{}\" freezes every tensor of the model", settings.freeze),
                     "Leave at least one tensor to train");
  }
}

// The model must have the layers of its adapter.
void check_adapter(const ModelConfig& config, const Settings& settings) {
  if (!config.adapter) return;
  try {
    const auto device = make_counting_device();
    const Model model(config, *device);
  } catch (const UsageError& error) {
    if (settings.init_adapter.empty()) throw;
    throw InputError(adapter_folder_of(settings), fmt::format("is no adapter of this model: {}", error.what()));
  }
}

// Which weights are quantized follows from the model's files if it has files: the rules of transformers for the names
// in config.json ("llm_int8_skip_modules") differ between its versions.
void settle_quantization(ModelConfig& config, const Settings& settings) {
  if (!config.quantization || settings.init == Settings::Init::random || names_a_shape(settings)) return;
  const fs::path folder = folder_of_model(settings);
  if (is_checkpoint(folder) || !TensorSource::exists(folder)) return;
  const TensorSource source(folder);
  ModelConfig all = config;
  all.quantization = Quantization{};
  const auto device = make_counting_device();
  const Model model(all, *device);
  Quantization found;
  bool has_packed = false;
  model.for_each_tensor([&](const ParameterSpec& spec) {
    if (!spec.quantized()) return;
    if (PackedTensors::has(source, spec.name)) {
      has_packed = true;
    } else {
      found.skipped.push_back(layer_of_tensor(model.file_name(spec.name)));
    }
  });
  if (!has_packed) {
    throw InputError(config_file_of(settings).string(),
                     "\"quantization_config\" says that the weights are in 4 bits, but no weight of a block is",
                     fmt::format("Remove the key, and give {} nf4 to quantize the model", option("base_dtype")));
  }
  config.quantization = std::move(found);
}

// Adds rows to the embedding and the head, so that they have a row for each token of the tokenizer.
void add_rows(ModelConfig& config, const Settings& settings) {
  const int64_t size = Tokenizer::load(tokenizer_file_of(settings)).vocab_size();
  if (size <= config.vocab_size) return;
  config.vocab_size_in_files = std::exchange(config.vocab_size, size);
}

// The configuration as config.json or the flags define it, without the effect of --resize-embeddings.
ModelConfig plain_config_of(const Settings& settings);

}  // namespace

ModelConfig model_config_of(const Settings& settings) {
  ModelConfig config = plain_config_of(settings);
  settle_quantization(config, settings);
  if (settings.resize_embeddings) add_rows(config, settings);
  config.adapter = adapter_of(settings);
  if (settings.base_dtype == Settings::BaseDtype::nf4 && !config.quantization) config.quantization = Quantization{};
  check_adapter(config, settings);
  check_freeze(config, settings);
  return config;
}

namespace {

ModelConfig plain_config_of(const Settings& settings) {
  if (settings.model.empty()) {
    throw UsageError(option_place("model"), "no model is given",
                     "Give a Hugging Face folder, or a known shape such as bloom-560m with --init random");
  }
  if (names_a_shape(settings)) {
    if (settings.init != Settings::Init::random) {
      throw UsageError(option_place("model"),
                       fmt::format("\"{}\" is the name of a shape, which has no pretrained weights", settings.model),
                       "Add --init random, or give the folder of a downloaded model");
    }
    ModelConfig config;
    return find_known_model(settings.model, config) ? config : config_with_sizes_of(settings);
  }
  check_place_of_model(settings);
  return read_model_config(config_file_of(settings));
}

}  // namespace

void check_trains(const ModelConfig& config, const Settings& settings) {
  if (!config.quantization || config.adapter) return;
  throw UsageError(
      option_place("model"),
      fmt::format("the weights of {} are in 4 bits, which cannot be trained", printable(settings.model)),
      fmt::format("Add {} lora to train an adapter beside them, or give the model in 16 bits", option("adapter")));
}

Tokenizer tokenizer_of(const Settings& settings, ModelConfig& config) {
  const fs::path path = tokenizer_file_of(settings);
  Tokenizer tokenizer = Tokenizer::load(path);
  if (tokenizer.vocabulary_end() > config.vocab_size) {
    throw InputError(path.string(),
                     fmt::format("has token ids up to {}, but the model's vocabulary has only {}",
                                 tokenizer.vocabulary_end() - 1, counted(config.vocab_size, "token")),
                     "Use the tokenizer of the model, or give --resize-embeddings to add rows to its embedding");
  }
  const GenerationConfig generation = generation_config_of(settings, config);
  const fs::path generation_path = generation_config_path(settings);
  for (const auto& [key, fault] : generation.faults) {
    config.notes.push_back(fmt::format("{}: {}. Tessera ignores this value", generation_path.string(), fault));
  }
  config.notes.insert(config.notes.end(), generation.notes.begin(), generation.notes.end());
  settle_special_tokens(config, {settings.eos_token, path, config_file_of(settings), generation_path}, tokenizer,
                        generation);
  return tokenizer;
}

EncodeFn encoder_of(const Tokenizer& tokenizer, const ModelConfig& config) {
  return [&tokenizer, size = config.vocab_size](TextPlace place, std::string_view text) {
    std::vector<int32_t> ids = tokenizer.encode_at(place, text);
    const auto outside = std::ranges::find_if(ids, [&](int32_t id) { return id >= size; });
    if (outside == ids.end()) return ids;
    throw InputError("",
                     fmt::format("the text has the token \"{}\" with the id {}, but the model's embedding has only {} "
                                 "rows",
                                 printable(tokenizer.decode(std::array{*outside}, false)), *outside, size),
                     "Remove the token, or give --resize-embeddings to add rows to the embedding");
  };
}

fs::path generation_config_path(const Settings& settings) {
  return folder_of_model(settings) / "generation_config.json";
}

GenerationConfig generation_config_of(const Settings& settings, const ModelConfig& config) {
  const fs::path path = generation_config_path(settings);
  std::error_code ignored;  // an unreadable folder is reported when its other files are read
  if (!fs::exists(path, ignored)) return {};
  const std::string text = read_file(path, {.longest_bytes = kMaxCompanionBytes});
  return parse_generation_config(text, path.string(), config.vocab_size);
}

std::optional<Sampling> sampling_of(const ResolvedSettings& resolved, const GenerationConfig& file) {
  if (!asks_for_sampling(resolved)) return std::nullopt;
  const Settings& s = resolved.settings;
  const std::string path = generation_config_path(s).string();
  const auto given_or = [&](const char* name, const auto& given, const auto& of_file) {
    if (resolved.is_given(name)) return given;
    for (const auto& [key, fault] : file.faults) {
      if (key == name) throw InputError(path, fault, "Correct the file, or give the value as a flag");
    }
    return of_file.value_or(given);
  };
  const Sampling sampling{.temperature = given_or("temperature", s.temperature, file.temperature),
                          .top_k = given_or("top_k", s.top_k, file.top_k),
                          .top_p = given_or("top_p", s.top_p, file.top_p)};
  if (sampling.temperature > 0) return sampling;
  throw UsageError(path,
                   "\"temperature\" is 0, so each token would be the most likely one, but random draws are requested",
                   "Give --temperature with a value above 0");
}

}  // namespace tessera
