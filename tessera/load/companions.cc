#include "tessera/load/companions.h"

#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tessera/base/git_lfs.h"
#include "tessera/base/read_file.h"
#include "tessera/base/record.h"
#include "tessera/load/model_place.h"
#include "tessera/load/special_tokens.h"
#include "tessera/model/generation_config.h"
#include "tessera/store/file.h"
#include "tessera/store/model_folder.h"

namespace tessera {

namespace fs = std::filesystem;

namespace {

constexpr const char *kTokenizerConfig = "tokenizer_config.json", *kSpecialTokensMap = "special_tokens_map.json";

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

}  // namespace

std::vector<Companion> read_companions(const Settings& settings, const ModelConfig& config,
                                       const Tokenizer& tokenizer) {
  std::vector<Companion> companions;
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
  if (fs::is_directory(folder / kChatTemplates, ignored)) {
    const char* const all = "*.jinja";
    for (const std::string& name : names_like(&all, &all + 1, folder / kChatTemplates)) {
      companions.push_back({fs::path(kChatTemplates) / name, read_companion(folder / kChatTemplates / name)});
    }
  }
  if (std::ranges::find(companions, kTokenizerConfig, &Companion::name) == companions.end()) {
    companions.push_back({kTokenizerConfig, default_tokenizer_config(config, tokenizer)});
  }
  return companions;
}

}  // namespace tessera
