#include "tessera/load/special_tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>

#include "tessera/base/error.h"
#include "tessera/base/option_names.h"
#include "tessera/base/read_file.h"
#include "tessera/base/record.h"
#include "tessera/base/text.h"

namespace tessera {

namespace fs = std::filesystem;

namespace {

constexpr uint64_t kMaxBytes = 64 << 20;
constexpr int32_t kUsual =
    2;  // the end token in BLOOM's tokenizers, in Llama 2's and in tokenizers that Tessera trains

}  // namespace

Record tokenizer_record(const fs::path& file) {
  std::error_code ignored;  // an unreadable folder is reported when its other files are read
  if (!fs::exists(file, ignored)) return Record::object();
  return record_from_json(read_file(file, {.longest_bytes = kMaxBytes}), file.string());
}

Record named_token(const Record& record, const char* key) {
  const Record token = record.value(key, Record());  // a text, or an object with the text in "content"
  const Record text = token.is_object() ? token.value("content", Record()) : token;
  return text.empty() || text == Record("") ? Record() : text;
}

namespace {

std::string special_tokens_of(const Tokenizer& tokenizer) {
  constexpr size_t kShown = 8;
  std::vector<std::string> tokens;
  for (int32_t id = 0; id < tokenizer.vocab_size() && tokens.size() < kShown; ++id) {
    if (tokenizer.is_special(id)) tokens.push_back(fmt::format("{} {}", id, tokenizer.decode(std::array{id}, false)));
  }
  return tokens.empty() ? "the tokenizer has no special tokens" : "the special tokens are " + joined(tokens, ", ");
}

std::string shown_token(const Tokenizer& tokenizer, int32_t id) {
  return fmt::format("{} \"{}\"", id, printable(tokenizer.decode(std::array{id}, false), 80));
}

// What one source says about the end token.
struct EndSource {
  std::string where;
  std::vector<int32_t> ids = {};  // empty: the source names no token
  bool names_text = false;        // it names the text of the token, so an ordinary token gives only a note
  bool is_guess = false;
  bool ends_generation = true;
  std::string fault = "";  // it names a token that the tokenizer does not have; an error if the source is the first one
};

EndSource of_file(const fs::path& file, const Tokenizer& tokenizer) {
  EndSource source{.where = file.string(), .names_text = true};
  const Record token = named_token(tokenizer_record(file), "eos_token");
  if (token.is_null()) return source;
  if (!token.is_string()) {
    source.fault = "\"eos_token\" is not the text of a token";
  } else if (const auto id = tokenizer.id_of(token.get<std::string>())) {
    source.ids = {*id};
  } else {
    source.fault = fmt::format("\"eos_token\" is \"{}\", but the tokenizer has no such token",
                               printable(token.get<std::string>(), 80));
  }
  return source;
}

// A number is always an id: tokenizers also have ordinary tokens whose texts are numbers. `others` are the sources that
// follow. If one of them names an ordinary token as the end token, --eos-token may name it, too.
EndSource of_flag(const std::string& token, const TokenSources& files, const Tokenizer& tokenizer,
                  const std::vector<EndSource>& others) {
  EndSource source{.where = "--eos-token", .names_text = true};
  if (token.empty()) return source;
  const std::string remedy = "Give the token that ends a text: " + special_tokens_of(tokenizer);
  int32_t number = -1;
  std::from_chars(token.data(), token.data() + token.size(), number);
  const bool is_number = token.find_first_not_of("0123456789") == token.npos;
  const auto id = is_number ? std::optional(number) : tokenizer.id_of(token);
  if (!id || tokenizer.bytes_of(*id).empty()) {
    throw UsageError("--eos-token",
                     fmt::format("\"{}\" is not {} of {}", printable(token, 80),
                                 is_number ? "the id of a token" : "a token", files.tokenizer_json.string()),
                     remedy);
  }
  const bool is_named = std::ranges::any_of(
      others, [&](const EndSource& other) { return other.names_text && !other.ids.empty() && other.ids[0] == *id; });
  if (tokenizer.is_ordinary(*id) && !is_named) {
    throw UsageError("--eos-token",
                     fmt::format("the token {} is an ordinary token of {}, which texts contain",
                                 shown_token(tokenizer, *id), files.tokenizer_json.string()),
                     fmt::format("{}. If it really ends texts, name it as \"eos_token\" in {}", remedy,
                                 (files.tokenizer_json.parent_path() / "tokenizer_config.json").string()));
  }
  source.ids = {*id};
  return source;
}

// The ids that the post-processor puts before or after a text.
std::vector<int32_t> ids_before(const Tokenizer& tokenizer) {
  return tokenizer.encode_at(TextPlace::start, "");
}
std::vector<int32_t> ids_after(const Tokenizer& tokenizer) {
  std::vector<int32_t> ids = tokenizer.encode_with_special("");
  ids.erase(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(std::min(ids.size(), ids_before(tokenizer).size())));
  return ids;
}

std::vector<EndSource> end_sources(const ModelConfig& config, const TokenSources& files, const Tokenizer& tokenizer,
                                   const GenerationConfig& generation) {
  const fs::path folder = files.tokenizer_json.parent_path();
  const bool has_config = !config.original_json.empty();
  EndSource of_config{.where = files.config_json.string()};
  if (has_config && config.eos_token_id >= 0) {
    of_config.ids = {config.eos_token_id};
    of_config.ids.insert(of_config.ids.end(), config.more_end_ids.begin(), config.more_end_ids.end());
  }
  EndSource of_template{.where = files.tokenizer_json.string() + ": post_processor", .names_text = true};
  if (const std::vector<int32_t> after = ids_after(tokenizer); !after.empty()) of_template.ids = {after.back()};
  of_template.ends_generation = false;
  EndSource guess{.where = "", .names_text = true, .is_guess = true, .ends_generation = false};
  for (const int32_t id : {has_config ? -1 : config.eos_token_id, kUsual}) {
    if (id >= 0 && tokenizer.is_special(id)) guess.ids.push_back(id);
  }
  std::vector<EndSource> sources = {of_file(folder / "tokenizer_config.json", tokenizer),
                                    of_file(folder / "special_tokens_map.json", tokenizer),
                                    of_config,
                                    {.where = files.generation_config.string(), .ids = generation.end_ids},
                                    of_template,
                                    guess};
  sources.insert(sources.begin(), of_flag(files.eos_token, files, tokenizer, sources));
  return sources;
}

// Throws InputError if `id` cannot end a text: the model would learn to end a text with an ordinary word, or would
// never learn to end it.
void check_end(int32_t id, const EndSource& source, const ModelConfig& config, const TokenSources& files,
               const Tokenizer& tokenizer) {
  const std::string remedy =
      "Give the token that ends a text, there or with --eos-token: " + special_tokens_of(tokenizer);
  if (id >= config.vocab_size) {
    throw InputError(source.where,
                     fmt::format("the end token {} is beyond the model's vocabulary of {} tokens",
                                 shown_token(tokenizer, id), config.vocab_size),
                     "Give --resize-embeddings to add rows to the embedding, or --eos-token with another token");
  }
  const std::string token = tokenizer.decode(std::array{id}, false);
  if (source.names_text || (!tokenizer.is_ordinary(id) && !token.empty())) return;
  throw InputError(source.where,
                   fmt::format("\"eos_token_id\" is {}, {} {}", id,
                               token.empty() ? "which is not a token of"
                                             : fmt::format("the ordinary token \"{}\" of", printable(token)),
                               files.tokenizer_json.string()),
                   remedy);
}

// Adds a note for each ordinary token that ends samples or generated texts.
void note_ordinary(const std::vector<EndSource>& sources, const EndSource& used, const Tokenizer& tokenizer,
                   std::vector<std::string>& notes) {
  std::vector<int32_t> noted;
  for (const EndSource& source : sources) {
    if (!source.ends_generation && &source != &used) continue;
    for (const int32_t id : source.ids) {
      if (!tokenizer.is_ordinary(id) || std::ranges::find(noted, id) != noted.end()) continue;
      noted.push_back(id);
      notes.push_back(fmt::format("{}: the end token {} is an ordinary token, which texts contain", source.where,
                                  shown_token(tokenizer, id)));
    }
  }
}

// The note for sources that do not name the token that training uses. Empty if there are none.
std::string note_of_others(const std::vector<EndSource>& sources, const EndSource& used, int32_t id,
                           const Tokenizer& tokenizer) {
  std::string others;
  for (const EndSource& source : sources) {
    if (!source.ends_generation || source.ids.empty() || std::ranges::find(source.ids, id) != source.ids.end())
      continue;
    others +=
        fmt::format("{}{} names {}", others.empty() ? "" : ", ", source.where, shown_token(tokenizer, source.ids[0]));
  }
  if (others.empty()) return "";
  return fmt::format(
      "the files name different end tokens: {} names {}, {}. A sample ends with the first one, and a generated text "
      "ends at any of them. To use another token, give --eos-token",
      used.where, shown_token(tokenizer, id), others);
}

// The ids that a config.json to save gets from the tokenizer's files.
void settle_other_tokens(ModelConfig& config, const TokenSources& files, const Tokenizer& tokenizer) {
  const fs::path folder = files.tokenizer_json.parent_path();
  const auto id_of = [&](const char* key, int32_t of_shape) {
    for (const char* file : {"tokenizer_config.json", "special_tokens_map.json"}) {
      const Record token = named_token(tokenizer_record(folder / file), key);
      const auto id = token.is_string() ? tokenizer.id_of(token.get<std::string>()) : std::nullopt;
      if (id && *id < config.vocab_size) return *id;
    }
    return tokenizer.is_special(of_shape) ? of_shape : -1;
  };
  const std::vector<int32_t> before = ids_before(tokenizer);
  config.bos_token_id = id_of("bos_token", before.empty() ? config.bos_token_id : before[0]);
  config.unk_token_id = id_of("unk_token", config.unk_token_id);
  config.pad_token_id = id_of("pad_token", config.pad_token_id);
}

}  // namespace

void settle_special_tokens(ModelConfig& config, const TokenSources& files, const Tokenizer& tokenizer,
                           const GenerationConfig& generation) {
  const std::vector<EndSource> sources = end_sources(config, files, tokenizer, generation);
  const auto used = std::ranges::find_if(
      sources, [](const EndSource& source) { return !source.ids.empty() || !source.fault.empty(); });
  if ((used == sources.end() || used->is_guess) && !config.end_fault.empty()) {
    throw InputError(files.config_json.string(), config.end_fault,
                     "Give the token that ends a text, there or with --eos-token: " + special_tokens_of(tokenizer));
  }
  if (used == sources.end()) {
    throw InputError(files.tokenizer_json.string(), "does not define which token ends a text",
                     fmt::format("Give --eos-token, or name the token as \"eos_token\" in {}; {}",
                                 (files.tokenizer_json.parent_path() / "tokenizer_config.json").string(),
                                 special_tokens_of(tokenizer)));
  }
  if (!used->fault.empty()) {
    throw InputError(used->where, used->fault,
                     "Use this file and tokenizer.json of the same tokenizer, or give --eos-token");
  }
  for (const EndSource& source : sources) {
    if (!source.fault.empty()) config.notes.push_back(fmt::format("{}: {}", source.where, source.fault));
  }
  const int32_t id = used->ids[0];
  check_end(id, *used, config, files, tokenizer);
  if (used->is_guess) {
    config.notes.push_back(fmt::format(
        "no file of the model or the tokenizer names the token that ends a text. Tessera takes {}. To use another "
        "token, give --eos-token, or name it as \"eos_token\" in {}",
        shown_token(tokenizer, id), (files.tokenizer_json.parent_path() / "tokenizer_config.json").string()));
  }
  const std::string note = files.eos_token.empty() ? note_of_others(sources, *used, id, tokenizer) : "";
  if (!note.empty()) config.notes.push_back(note);
  note_ordinary(sources, *used, tokenizer, config.notes);
  config.eos_token_id = id;
  config.more_end_ids.clear();
  for (const EndSource& source : sources) {
    if (!source.ends_generation) continue;
    for (const int32_t other : source.ids) {
      const bool is_new = other != id && std::ranges::find(config.more_end_ids, other) == config.more_end_ids.end();
      if (is_new && other < config.vocab_size) config.more_end_ids.push_back(other);
    }
  }
  if (config.original_json.empty()) settle_other_tokens(config, files, tokenizer);
}

std::string with_end_token(const std::string& text, const std::string& where, const std::string& token) {
  Record record = record_from_json(text, where);
  if (!record.is_object()) return text;
  Record& value = record["eos_token"];
  if (value == Record(token) || (value.is_object() && value.value("content", Record()) == Record(token))) return text;
  value = token;
  return to_pretty_json(record) + "\n";
}

}  // namespace tessera
