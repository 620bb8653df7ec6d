#include "tessera/load/model_place.h"

#include <fmt/format.h>

#include <system_error>
#include <vector>

#include "tessera/base/closest_word.h"
#include "tessera/base/option_names.h"
#include "tessera/base/text.h"
#include "tessera/load/checkpoint_weights.h"
#include "tessera/model/architecture.h"
#include "tessera/store/checkpoint.h"
#include "tessera/store/foreign_model.h"
#include "tessera/store/hub_cache.h"
#include "tessera/store/model_folder.h"

namespace tessera {

namespace fs = std::filesystem;

namespace {

bool is_there(const fs::path& path) {
  std::error_code ignored;  // an unreadable path is reported when it is used
  return fs::exists(path, ignored);
}

// The path that a user's word means: itself, the folder `model` of a run, or a snapshot in the hub's cache.
fs::path found(const std::string& word) {
  const fs::path path = word;
  if (word.empty()) return path;
  if (!is_there(path)) {
    const auto model = is_shape_name(word) ? std::nullopt : hub_model(word);
    return model ? find_in_hub_cache(*model).value_or(path) : path;
  }
  std::error_code ignored;
  if (!fs::is_directory(path, ignored) || is_there(path / "config.json")) return path;
  if (is_there(path / "model" / "config.json") || is_there(path / "model" / "adapter_config.json")) {
    return path / "model";
  }
  return is_hub_folder(path) ? hub_snapshot(path) : path;
}

[[noreturn]] void throw_no_model(const std::string& word) {
  const std::string meant = did_you_mean(word, known_model_names()), shapes = joined(shape_names(), ", ");
  const auto model = hub_model(word);
  if (!model) {
    throw InputError(word, "no such model folder",
                     fmt::format("{}{}Give a Hugging Face folder, or with --init random one of: {}", meant,
                                 meant.empty() ? "" : " ", shapes));
  }
  const bool may_be_shape = model->name.find('/') == model->name.npos;
  throw InputError(
      word,
      fmt::format("no such folder, and the cache of the Hugging Face hub ({}) has no such model", hub_cache().string()),
      fmt::format("{}{}Check the path, or download the model: {}{}", meant, meant.empty() ? "" : " ",
                  download_command(*model),
                  may_be_shape ? ". Or give one of these names with --init random: " + shapes : ""));
}

void check_folder(const fs::path& folder) {
  if (is_there(folder / "config.json")) {
    // Some programs save the base model's config.json with an adapter.
    const bool is_adapter = is_there(folder / "adapter_config.json") && !TensorSource::exists(folder);
    if (is_adapter && !is_checkpoint(folder)) refuse_foreign_folder(folder);
    return;
  }
  if (is_checkpoint(folder)) {
    throw InputError(folder, "is a checkpoint without config.json: an earlier version of Tessera wrote it",
                     fmt::format("Convert it: tessera export --model INITIAL_MODEL --checkpoint {} --output-dir FOLDER",
                                 folder.string()));
  }
  if (const std::vector<int64_t> steps = checkpoint_steps(folder); !steps.empty()) {
    throw InputError(folder, "is the output folder of an unfinished run, which has no model yet",
                     fmt::format("Run the same tessera train command again to finish it, or give a checkpoint: {}",
                                 checkpoint_folder(folder, steps.back()).string()));
  }
  refuse_foreign_folder(folder);
}

// Throws the error for a folder without tokenizer.json. `where`: the missing file. `what`: the error's text.
[[noreturn]] void throw_no_tokenizer(const fs::path& where, const std::string& what, const std::string& remedy) {
  const fs::path folder = where.parent_path();
  for (const char* name : {"tokenizer.model", "vocab.json", "spiece.model", "tekken.json"}) {
    if (!is_there(folder / name)) continue;
    throw InputError(where, fmt::format("{}, only {}", what, name),
                     fmt::format("Make it: python -c \"from transformers import AutoTokenizer as T; "
                                 "T.from_pretrained('{0}').save_pretrained('{0}')\"",
                                 folder.string()));
  }
  throw InputError(where, what, remedy);
}

}  // namespace

fs::path folder_of_model(const Settings& settings) {
  const fs::path path = found(settings.model);
  return path.filename() == "config.json" ? path.parent_path() : path;
}

fs::path config_file_of(const Settings& settings) {
  const fs::path path = found(settings.model);
  return fs::is_directory(path) ? path / "config.json" : path;
}

bool names_a_shape(const Settings& settings) {
  return is_shape_name(settings.model) && !is_there(fs::path(settings.model) / "config.json");
}

void check_place_of_model(const Settings& settings) {
  const fs::path path = found(settings.model);
  if (!is_there(path)) throw_no_model(settings.model);
  if (fs::is_directory(path)) {
    check_folder(path);
  } else if (fs::is_regular_file(path)) {
    refuse_foreign_file(path);
  }
}

fs::path tokenizer_file_of(const Settings& settings) {
  if (settings.tokenizer.empty()) {
    if (names_a_shape(settings)) {
      throw UsageError(option_place("tokenizer"),
                       fmt::format("\"{}\" is the name of a shape, which has no tokenizer", settings.model),
                       "Give a tokenizer.json or its folder");
    }
    if (!is_there(found(settings.model))) throw_no_model(settings.model);
    const fs::path file = folder_of_model(settings) / "tokenizer.json";
    if (!is_there(file)) throw_no_tokenizer(file, "the model has no tokenizer.json", "Give one with --tokenizer");
    return file;
  }
  const fs::path own = settings.tokenizer;
  const fs::path path = is_there(own / "tokenizer.json") ? own : found(settings.tokenizer);
  if (!is_there(path)) {
    std::string remedy = "Give the tokenizer.json of a model folder";
    if (const auto model = hub_model(settings.tokenizer)) {
      remedy += fmt::format(
          ", or download the tokenizer: hf download {} tokenizer.json tokenizer_config.json{} "
          "--local-dir tokenizer, and give --tokenizer tokenizer",
          model->name, model->revision == "main" ? "" : " --revision " + model->revision);
    }
    throw InputError(path, "no such file", remedy);
  }
  if (!fs::is_directory(path)) return path;
  if (!is_there(path / "tokenizer.json")) {
    throw_no_tokenizer(path / "tokenizer.json", "no such file", "Give the tokenizer.json of a model folder");
  }
  return path / "tokenizer.json";
}

void check_model_is_kept(const Settings& settings) {
  std::error_code ignored;  // an unreadable path is reported when it is used
  if (settings.model.empty() || !fs::exists(settings.model, ignored)) return;
  const fs::path output = fs::weakly_canonical(settings.output_dir, ignored);
  const fs::path model = fs::weakly_canonical(folder_of_model(settings) / "config.json", ignored).parent_path();
  if (model == output / "model") {
    throw UsageError(option_place("output_dir"),
                     fmt::format("the trained model would replace the initial model {} (--model)", settings.model),
                     "Give another --output-dir");
  }
  if (model.parent_path() == output && is_checkpoint(model)) {
    throw UsageError(
        option_place("output_dir"), fmt::format("has the initial model {} (--model) as a checkpoint", settings.model),
        fmt::format("Give another --output-dir. To continue that run, give its own --model, and --resume {}",
                    settings.model));
  }
}

}  // namespace tessera
