#include "tessera/load/saved_model.h"

#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "tessera/base/git_lfs.h"
#include "tessera/base/read_file.h"
#include "tessera/base/record.h"
#include "tessera/load/checkpoint_weights.h"
#include "tessera/load/model_place.h"
#include "tessera/load/special_tokens.h"
#include "tessera/model/generation_config.h"
#include "tessera/store/all_ranks.h"
#include "tessera/store/file.h"
#include "tessera/store/model_folder.h"
#include "tessera/store/packed_tensors.h"

namespace tessera {

namespace fs = std::filesystem;

namespace {

constexpr const char *kTokenizerConfig = "tokenizer_config.json", *kSpecialTokensMap = "special_tokens_map.json",
                     *kChatTemplate = "chat_template.jinja";

std::string read_companion(const fs::path& path) {
  constexpr uint64_t kMaxBytes = 64 << 20;
  std::string text = read_file(path, {.longest_bytes = kMaxBytes});
  if (is_lfs_pointer(text)) throw_lfs_pointer(path);
  return text;
}

// The text of tokenizer_config.json, for a tokenizer folder without this file.
std::string default_tokenizer_config(const ModelConfig& config, const Tokenizer& tokenizer) {
  Record record{{"tokenizer_class", "PreTrainedTokenizerFast"}};
  const std::pair<const char*, int32_t> tokens[] = {{"unk_token", config.unk_token_id},
                                                    {"bos_token", config.bos_token_id},
                                                    {"eos_token", config.eos_token_id},
                                                    {"pad_token", config.pad_token_id}};
  for (const auto& [key, id] : tokens) {
    const bool is_known = id >= 0 && (id == config.eos_token_id || tokenizer.is_special(id));
    if (is_known) record[key] = tokenizer.decode(std::array{id}, false);
  }
  record["padding_side"] = "left";
  record["clean_up_tokenization_spaces"] = false;
  return to_pretty_json(record) + "\n";
}

// The names in a folder that match a pattern, sorted. Empty if the folder does not exist.
std::vector<std::string> names_like(const char* const* begin, const char* const* end, const fs::path& folder) {
  std::vector<std::string> names = names_in_folder(folder.empty() ? fs::path(".") : folder);
  std::erase_if(names, [&](const std::string& name) {
    return std::none_of(begin, end, [&](const char* pattern) { return fnmatch(pattern, name.c_str(), 0) == 0; });
  });
  std::ranges::sort(names);
  return names;
}

// The index of a tensor's type in kSavedTypes, as a digit. Returns 0 (f32) for types that a saved model cannot have
// (f64), and for tensors that are in no file. A tensor without a file is no error here, because the loader reports it.
char digit_of(std::optional<DType> dtype) {
  const auto known = std::find(kSavedTypes.begin(), kSavedTypes.end(), dtype);
  return static_cast<char>('0' + (known == kSavedTypes.end() ? 0 : known - kSavedTypes.begin()));
}

std::vector<ModelFile> read_companions(const Settings& settings, const ModelConfig& config,
                                       const Tokenizer& tokenizer) {
  std::vector<ModelFile> companions{{"tokenizer.json", tokenizer.json_text()}};
  const fs::path generation = folder_of_model(settings) / "generation_config.json";
  std::error_code ignored;  // an unreadable folder is reported when its other files are read
  if (fs::exists(generation, ignored)) {
    companions.push_back({generation.filename(), generation_config_to_save(read_companion(generation),
                                                                           generation.string(), config.eos_token_id)});
  }
  const fs::path folder = tokenizer_file_of(settings).parent_path();
  for (const std::string& name : names_like(std::begin(kTokenizerFiles), std::end(kTokenizerFiles), folder)) {
    std::string text = read_companion(folder / name);
    // --eos-token replaces the token that these files name, so that the saved model ends its texts as in training.
    if (!settings.eos_token.empty() && (name == kTokenizerConfig || name == kSpecialTokensMap)) {
      text = with_end_token(text, (folder / name).string(), tokenizer.decode(std::array{config.eos_token_id}, false));
    }
    companions.push_back({name, std::move(text)});
  }
  // transformers prefers this file to a template in tokenizer_config.json.
  if (!settings.chat_template.empty()) {
    std::erase_if(companions, [](const ModelFile& file) { return file.name == kChatTemplate; });
    companions.push_back({kChatTemplate, read_companion(settings.chat_template)});
  }
  if (fs::is_directory(folder / kChatTemplates, ignored)) {
    const char* const all = "*.jinja";
    for (const std::string& name : names_like(&all, &all + 1, folder / kChatTemplates)) {
      companions.push_back({fs::path(kChatTemplates) / name, read_companion(folder / kChatTemplates / name)});
    }
  }
  if (std::ranges::find(companions, kTokenizerConfig, &ModelFile::name) == companions.end()) {
    companions.push_back({kTokenizerConfig, default_tokenizer_config(config, tokenizer)});
  }
  return companions;
}

// What an adapter's folder says about its base: a name of the hub as it was given, or the folder of the model.
std::string base_name(const Settings& settings) {
  std::error_code ignored;  // the model has been read
  if (settings.model.empty() || names_a_shape(settings) || !fs::exists(settings.model, ignored)) return settings.model;
  return fs::absolute(folder_of_model(settings) / "config.json").lexically_normal().parent_path().string();
}

}  // namespace

// Rank 0 sends one digit for each tensor: the index of the tensor's type in kSavedTypes.
LoadedTypes loaded_types_of(const Model& model, const Settings& settings, Communicator& world) {
  const auto codes = on_all_ranks(world, "the types of the weights", [&] {
    std::string text;
    if (world.rank() != 0) return text;
    std::optional<TensorSource> source;
    const bool has_files = settings.init != Settings::Init::random;
    const fs::path folder = has_files ? folder_of_model(settings) : "";
    if (has_files && is_checkpoint(folder)) {
      const LoadedTypes known = loaded_types_in(folder);
      model.for_each_tensor([&](const ParameterSpec& spec) {
        const auto type = known.find(spec.name);
        text += digit_of(type == known.end() ? std::nullopt : std::optional(type->second));
      });
      return text;
    }
    if (has_files && TensorSource::exists(folder)) source.emplace(folder);
    model.for_each_tensor([&](const ParameterSpec& spec) {
      const bool packed = source && PackedTensors::has(*source, spec.name);
      text += digit_of(packed   ? PackedTensors::unpacked_dtype(*source, spec.name)
                       : source ? source->dtype_of(spec.name)
                                : std::nullopt);
    });
    return text;
  });
  LoadedTypes loaded;
  model.for_each_tensor([&](const ParameterSpec& spec) {
    loaded[spec.name] = kSavedTypes.at(static_cast<size_t>(codes[0].at(loaded.size()) - '0'));
  });
  return loaded;
}

ModelWriterOptions saved_model_options(const Settings& settings, const ModelConfig& config, const Tokenizer& tokenizer,
                                       const LoadedTypes& loaded) {
  return {.loaded = loaded,
          .dtype = settings.save_dtype,
          .max_shard_bytes = settings.max_shard_size,
          .base = base_name(settings),
          .read_files = [&] { return read_companions(settings, config, tokenizer); }};
}

}  // namespace tessera
