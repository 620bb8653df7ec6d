#include "tessera/load/model_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tessera/base/counted.h"
#include "tessera/base/read_file.h"
#include "tessera/comm/world.h"
#include "tessera/report/record.h"
#include "tessera/settings/suggest.h"
#include "tessera/store/checkpoint.h"
#include "tessera/store/checksum.h"
#include "tessera/store/file.h"
#include "tessera/store/model_folder.h"

namespace tessera {

namespace fs = std::filesystem;

namespace {

constexpr uint64_t kMaxCompanionBytes = 64 << 20;

// The path of the tokenizer.json that --tokenizer means. --tokenizer is this file or its folder.
fs::path tokenizer_path(const Settings& settings) {
  const fs::path path = settings.tokenizer;
  return fs::is_directory(path) ? path / "tokenizer.json" : path;
}

ModelConfig gpt_config_of(const Settings& settings) {
  ModelConfig config;
  config.architecture = "gpt";
  config.vocab_size = settings.vocab_size;
  config.hidden_size = settings.hidden_size;
  config.num_layers = settings.num_layers;
  config.num_heads = settings.num_heads;
  config.ff_dim = settings.ff_dim;
  config.hidden_dropout = config.attention_dropout = settings.dropout;
  config.tied_head = settings.tie_word_embeddings;
  if (config.vocab_size == 0 && !settings.tokenizer.empty()) {
    config.vocab_size = Tokenizer::load(tokenizer_path(settings)).vocab_size();
  }
  if (config.vocab_size == 0) {
    throw UsageError("--vocab-size", "the model \"gpt\" needs the size of its vocabulary",
                     "Give --vocab-size, or --tokenizer to use the tokenizer's size");
  }
  if (const std::string fault = fault_of(config); !fault.empty()) throw UsageError("the model \"gpt\"", fault);
  return config;
}

// The path of --model. If --model is the output folder of a training run, the path of the folder `model` in it.
fs::path model_path(const Settings& settings) {
  const fs::path path = settings.model;
  std::error_code ignored;  // an unreadable path is reported when it is used
  const bool is_output_folder =
      !fs::exists(path / "config.json", ignored) && fs::exists(path / "model" / "config.json", ignored);
  return is_output_folder ? path / "model" : path;
}

fs::path config_file_of(const Settings& settings) {
  const fs::path path = model_path(settings);
  return fs::is_directory(path) ? path / "config.json" : path;
}

// The id of the token that tokenizer_config.json names as "eos_token". nullopt if the file does not exist or names no
// token. Throws InputError if the tokenizer does not have this token.
std::optional<int32_t> named_end(const Tokenizer& tokenizer, const fs::path& tokenizer_config) {
  if (!fs::exists(tokenizer_config)) return std::nullopt;
  const std::string text = read_file(tokenizer_config, {.longest_bytes = kMaxCompanionBytes});
  const Record record = record_from_json(text, tokenizer_config.string());
  Record token = record.value("eos_token", Record());  // a text, or an object with the text in "content"
  if (token.is_object()) token = token.value("content", Record());
  if (!token.is_string()) return std::nullopt;
  const auto name = token.get<std::string>();
  const std::optional<int32_t> id = tokenizer.id_of(name);
  if (id) return id;
  throw InputError(tokenizer_config.string(),
                   fmt::format("\"eos_token\" is \"{}\", but the tokenizer has no such token", printable(name)),
                   "Use tokenizer.json and tokenizer_config.json of the same tokenizer");
}

std::string special_tokens_of(const Tokenizer& tokenizer) {
  constexpr size_t kShown = 8;
  std::vector<std::string> tokens;
  for (int32_t id = 0; id < tokenizer.vocab_size() && tokens.size() < kShown; ++id) {
    if (tokenizer.is_special(id)) tokens.push_back(fmt::format("{} {}", id, tokenizer.decode(std::array{id}, false)));
  }
  return tokens.empty() ? "the tokenizer has no special tokens" : "the special tokens are " + joined(tokens, ", ");
}

// Sets config.eos_token_id if the configuration does not define it. Otherwise checks it: it must be the token that
// tokenizer_config.json names or, if this file names none, a special token of the tokenizer. With a wrong token, the
// model would learn to end a text with an ordinary word, or would never learn to end it. `path`: the tokenizer.json.
void settle_end(ModelConfig& config, const Settings& settings, const Tokenizer& tokenizer, const fs::path& path) {
  constexpr int32_t kUsual = 2;  // the end-of-text token in BLOOM's tokenizers and in tokenizers that Tessera trains
  const fs::path tokenizer_config = path.parent_path() / "tokenizer_config.json";
  const std::optional<int32_t> named = named_end(tokenizer, tokenizer_config);
  if (config.eos_token_id < 0) {
    if (!named && !tokenizer.is_special(kUsual)) {
      throw InputError(
          path.string(), "does not define which token ends a text",
          fmt::format("Name it as \"eos_token\" in {}; {}", tokenizer_config.string(), special_tokens_of(tokenizer)));
    }
    config.eos_token_id = named.value_or(kUsual);
    return;
  }
  // If several tokens can end a text, training uses the token that tokenizer_config.json names.
  const auto other = std::find(config.more_end_ids.begin(), config.more_end_ids.end(), named.value_or(-1));
  if (other != config.more_end_ids.end()) std::swap(*other, config.eos_token_id);
  const int32_t id = config.eos_token_id;
  const std::string where = config_file_of(settings).string();
  if (named && *named != id) {
    throw InputError(
        where, fmt::format("\"eos_token_id\" is {}, but {} names token {}", id, tokenizer_config.string(), *named),
        "Use the same token in both files");
  }
  if (named || tokenizer.is_special(id)) return;
  const std::string token = tokenizer.decode(std::array{id}, false);
  throw InputError(where,
                   fmt::format("\"eos_token_id\" is {}, {} {}", id,
                               token.empty() ? "which is not a token of"
                                             : fmt::format("the ordinary token \"{}\" of", printable(token)),
                               path.string()),
                   "Give the id of the token that ends a text: " + special_tokens_of(tokenizer));
}

// Adds `ids` (from generation_config.json) to the ids of the tokens that end a text.
void add_end_ids(ModelConfig& config, const std::vector<int32_t>& ids) {
  for (const int32_t id : ids) {
    const bool known =
        id == config.eos_token_id || std::ranges::find(config.more_end_ids, id) != config.more_end_ids.end();
    if (!known) config.more_end_ids.push_back(id);
  }
}

// Throws InputError if the head is tied and the files contain a head tensor that is not equal to the embedding.
// Divides the tensors into `num_ranks` parts, and compares only part `rank`.
void check_tied(const TensorSource& source, const Model& model, int rank, int num_ranks, ThreadPool& pool) {
  for (const std::string& name : model.tolerated_names()) {
    if (!source.contains(name) || source.are_equal(name, model.embedding_name(), rank, num_ranks, pool)) continue;
    throw InputError(
        source.file_of(name).string(),
        fmt::format("tensor \"{}\" is not equal to \"{}\"", name, model.embedding_name()),
        "In config.json the head is tied to the embedding. Set \"tie_word_embeddings\" to false there to use the "
        "tensor as the head, or remove the tensor to use the embedding");
  }
}

// Sets config.frozen from --freeze. Each pattern must match a tensor, and at least one tensor must stay trainable.
void freeze(ModelConfig& config, const Settings& settings) {
  config.frozen = split_list(settings.freeze);
  if (config.frozen.empty()) return;
  const auto device = make_counting_device();
  const Model model(config, *device);
  std::vector<std::string> names;
  const ParameterSpec* before = nullptr;
  for (int64_t u = 0; u < model.num_units(); ++u) {
    for (const ParameterSpec& spec : model.unit(u).table().specs()) {
      if (spec.joined && spec.trainable != before->trainable) {
        throw UsageError("--freeze",
                         fmt::format("\"{}\" freezes only one of {} and {}, which are computed together",
                                     settings.freeze, before->name, spec.name),
                         "Freeze both tensors, or neither of them");
      }
      names.push_back(spec.name);
      before = &spec;
    }
  }
  for (const std::string& pattern : config.frozen) {
    const auto is_meant = [&](const std::string& name) { return model.matches(pattern, name); };
    if (std::any_of(names.begin(), names.end(), is_meant)) continue;
    const std::string meant = did_you_mean(pattern, names);
    throw UsageError("--freeze", fmt::format("no tensor of the model has a name like \"{}\"", printable(pattern)),
                     fmt::format("{}{}Use the names in the model's files, such as {} and {}", meant,
                                 meant.empty() ? "" : " ", names.front(), names.back()));
  }
  if (model.num_trainable_parameters() == 0) {
    throw UsageError("--freeze", fmt::format("\"{}\" freezes every tensor of the model", settings.freeze),
                     "Leave at least one tensor to train");
  }
}

// The configuration as config.json or the flags define it, without the effect of --freeze.
ModelConfig plain_config_of(const Settings& settings);

}  // namespace

fs::path folder_of_model(const Settings& settings) {
  const fs::path path = model_path(settings);
  return path.filename() == "config.json" ? path.parent_path() : path;
}

ModelConfig model_config_of(const Settings& settings) {
  ModelConfig config = plain_config_of(settings);
  freeze(config, settings);
  return config;
}

void check_model_is_kept(const Settings& settings) {
  std::error_code ignored;  // an unreadable path is reported when it is used
  const fs::path result = fs::weakly_canonical(fs::path(settings.output_dir) / "model", ignored);
  if (settings.model.empty() || !fs::exists(settings.model, ignored) ||
      fs::weakly_canonical(folder_of_model(settings), ignored) != result) {
    return;
  }
  throw UsageError("--output-dir",
                   fmt::format("the trained model would replace the initial model {} (--model)", settings.model),
                   "Give another --output-dir");
}

namespace {

ModelConfig plain_config_of(const Settings& settings) {
  if (settings.model.empty()) {
    throw UsageError("--model", "no model is given",
                     "Give a Hugging Face folder, or a known shape such as bloom-560m with --init random");
  }
  const fs::path path = settings.model;
  ModelConfig config;
  const bool is_name = settings.model == "gpt" || find_known_model(settings.model, config);
  if (is_name && !fs::exists(path / "config.json")) {
    if (settings.init != Settings::Init::random) {
      throw UsageError("--model",
                       fmt::format("\"{}\" is the name of a shape, which has no pretrained weights", settings.model),
                       "Add --init random, or give the folder of a downloaded model");
    }
    return settings.model == "gpt" ? gpt_config_of(settings) : config;
  }
  if (!fs::exists(path)) {
    const std::vector<std::string> names = known_model_names();
    const std::string meant = did_you_mean(settings.model, names);
    throw InputError(settings.model, "no such model folder",
                     fmt::format("{}{}Give a Hugging Face folder, or with --init random one of: gpt, {}", meant,
                                 meant.empty() ? "" : " ", joined(names, ", ")));
  }
  const fs::path file = config_file_of(settings);
  if (fs::is_directory(path) && !fs::exists(file) && !checkpoint_steps(path).empty()) {
    throw InputError(
        settings.model, "is the output folder of an unfinished run, which has no model yet",
        "Run the same tessera train command again to finish it, or convert a checkpoint with tessera export");
  }
  return read_model_config(file);
}

}  // namespace

Tokenizer tokenizer_of(const Settings& settings, ModelConfig& config) {
  const fs::path path =
      settings.tokenizer.empty() ? folder_of_model(settings) / "tokenizer.json" : tokenizer_path(settings);
  if (settings.tokenizer.empty() && !fs::exists(settings.model)) {
    throw UsageError("--tokenizer",
                     fmt::format("\"{}\" is the name of a shape, which has no tokenizer", settings.model),
                     "Give a tokenizer.json or its folder");
  }
  if (settings.tokenizer.empty() && !fs::exists(path)) {
    throw InputError(path.string(), "the model has no tokenizer.json", "Give one with --tokenizer");
  }
  Tokenizer tokenizer = Tokenizer::load(path);
  if (tokenizer.vocab_size() > config.vocab_size) {
    throw InputError(path.string(),
                     fmt::format("has token ids up to {}, but the model's vocabulary has only {}",
                                 tokenizer.vocab_size() - 1, counted(config.vocab_size, "token")),
                     "Use the tokenizer of the model");
  }
  settle_end(config, settings, tokenizer, path);
  add_end_ids(config, generation_config_of(settings, config).end_ids);
  return tokenizer;
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
    return resolved.is_given(name) ? given : of_file.value_or(given);
  };
  const Sampling sampling{.temperature = given_or("temperature", s.temperature, file.temperature),
                          .top_k = given_or("top_k", s.top_k, file.top_k),
                          .top_p = given_or("top_p", s.top_p, file.top_p)};
  if (sampling.temperature > 0) return sampling;
  throw UsageError(path,
                   "\"temperature\" is 0, so each token would be the most likely one, but random draws are requested",
                   "Give --temperature with a value above 0");
}

ReadAhead read_weights_ahead(const Settings& settings, const World* world) {
  const bool reads = !world || (world->local_rank() == 0 && world->local_size() == world->size());
  if (!reads || settings.init == Settings::Init::random) return {};
  const fs::path folder = folder_of_model(settings);
  std::error_code error;
  std::vector<fs::path> files = {folder / "model.safetensors"};
  if (!fs::exists(files[0], error)) {
    files.clear();
    for (auto it = fs::directory_iterator(folder, error); it != fs::end(it); it.increment(error)) {
      if (it->path().extension() == ".safetensors") files.push_back(it->path());
    }
    std::sort(files.begin(), files.end());
  }
  return ReadAhead(std::move(files));
}

void load_parameters(Engine& engine, const fs::path& folder, Communicator& world, ThreadPool& pool) {
  const bool from_rank_0 = engine.options().sharding.sync_module_states;
  if (from_rank_0 && world.rank() > 0) {  // the folder may be missing on these ranks
    engine.load_parameters({}, from_rank_0);
    return;
  }
  const TensorSource source(folder);
  const Model& model = engine.model();
  std::vector<std::pair<std::string, Shape>> expected;
  for (int64_t u = 0; u < model.num_units(); ++u) {
    for (const ParameterSpec& spec : model.unit(u).table().specs()) expected.emplace_back(spec.name, spec.shape);
  }
  source.check_tensors(expected, model.tolerated_names());
  const bool all_read = !from_rank_0 && world.size() > 1;
  if (all_read) check_agreement(world, {{"weights_checksum", checksum_text(source.sampled_checksum())}});
  check_tied(source, model, all_read ? world.rank() : 0, all_read ? world.size() : 1, pool);
  engine.load_parameters(
      [&](int64_t unit, ElemRange range, View to) {
        for (const ParameterSpec& spec : model.unit(unit).table().specs()) {
          const int64_t begin = std::max(range.begin, spec.offset);
          const int64_t end = std::min(range.end, spec.offset + spec.shape.num_elems());
          if (begin >= end) continue;
          source.read_range_into(spec.name, begin - spec.offset, end - spec.offset,
                                 to.rows(begin - range.begin, end - range.begin), &pool);
        }
      },
      from_rank_0);
}

void load_or_initialize(Engine& engine, const Settings& settings, Communicator& world, ThreadPool& pool) {
  if (settings.init == Settings::Init::random)
    engine.initialize_parameters(static_cast<uint64_t>(settings.seed));
  else
    load_parameters(engine, folder_of_model(settings), world, pool);
}

}  // namespace tessera
