#include "tessera/load/gguf_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <optional>

#include "tessera/base/error.h"
#include "tessera/base/json.h"
#include "tessera/base/option_names.h"
#include "tessera/base/record.h"
#include "tessera/data/tokenizer_split.h"
#include "tessera/load/special_tokens.h"
#include "tessera/store/model_folder.h"

namespace tessera {

namespace {

using nlohmann::json;

constexpr const char* kSpace = "\u2581";  // SentencePiece's space

// The types of tokens in the format.
enum TokenType : int32_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };

// llama.cpp's name for a way to divide texts into words.
struct PreTokenizer {
  const char* pattern;
  const char* name;
};
constexpr const char* kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr PreTokenizer kPreTokenizers[] = {
    {kGpt2Pattern, "gpt-2"},
    {kBloomPattern, "bloom"},
    {kLlama3Pattern, "llama-bpe"},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     "qwen2"},
    {R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
     R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|)"
     R"(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     "tekken"},
};

// The parts of a "Sequence", or the part itself. Empty for null.
std::vector<json> parts_of(const json& file, const char* key, const char* list) {
  const auto found = file.find(key);
  if (found == file.end() || found->is_null()) return {};
  if (found->value("type", "") != "Sequence") return {*found};
  std::vector<json> parts;
  for (const json& part : found->at(list)) parts.push_back(part);
  return parts;
}

[[noreturn]] void refuse(const std::string& where, const std::string& what) {
  throw InputError(
      where, what,
      fmt::format("Without {}, the export writes a Hugging Face folder. In GGUF, a tokenizer divides texts "
                  "as GPT-2, BLOOM, Llama 3, Qwen 2, Mistral (Tekken) or SmolLM do, or is of "
                  "SentencePiece's style, as Llama 2",
                  option("gguf")));
}

bool is_type(const json& part, const char* type) {
  return part.value("type", "") == type;
}

// The name of a byte-level tokenizer's pre-tokenizer.
std::string pre_tokenizer_of(const json& file, const std::string& where) {
  const std::vector<json> parts = parts_of(file, "pre_tokenizer", "pretokenizers");
  const bool ends_with_bytes = !parts.empty() && is_type(parts.back(), "ByteLevel");
  TESSERA_ASSERT(ends_with_bytes);  // the tokenizer is byte-level
  const std::string place = where + ": pre_tokenizer";
  if (parts.back().value("add_prefix_space", true)) refuse(place, "add_prefix_space is true, which GGUF does not have");
  const bool uses_regex = parts.back().value("use_regex", true);
  if (parts.size() == 1 && uses_regex) return "gpt-2";
  if (parts.size() == 2 && uses_regex && is_type(parts[0], "Digits") && parts[0].value("individual_digits", false)) {
    return "smollm";
  }
  if (parts.size() != 2 || uses_regex || !is_type(parts[0], "Split")) refuse(place, "GGUF has no name for its steps");
  const json& pattern = parts[0].at("pattern");
  const std::string text = pattern.value("Regex", pattern.value("String", ""));
  const bool is_isolated = parts[0].value("behavior", "") == "Isolated";
  const bool keeps_matches = parts[0].value("behavior", "") == "Removed" && parts[0].value("invert", false);
  const auto known = std::ranges::find_if(kPreTokenizers, [&](const PreTokenizer& p) { return text == p.pattern; });
  if (known == std::end(kPreTokenizers) || (!is_isolated && !keeps_matches)) {
    refuse(place, fmt::format("GGUF has no name for the pattern \"{}\"", printable(text)));
  }
  // llama-bpe takes a word that is a token as it is. The other name has the same pattern, without this.
  if (text == kLlama3Pattern && !file.at("model").value("ignore_merges", false)) return "smaug-bpe";
  return known->name;
}

// Whether the tokenizer of SentencePiece's style puts a space before a text.
bool adds_space(const json& file, const std::string& where) {
  bool adds = false;
  for (const json& part : parts_of(file, "normalizer", "normalizers")) {
    if (is_type(part, "Prepend") && part.value("prepend", "") == kSpace) {
      adds = true;
    } else if (!is_type(part, "Replace") || part.value("content", "") != kSpace) {
      refuse(where + ": normalizer", fmt::format("GGUF does not have the step \"{}\"", part.value("type", "")));
    }
  }
  for (const json& part : parts_of(file, "pre_tokenizer", "pretokenizers")) {
    if (!is_type(part, "Metaspace") || part.value("replacement", "") != kSpace) {
      refuse(where + ": pre_tokenizer", fmt::format("GGUF does not have the step \"{}\"", part.value("type", "")));
    }
    adds = part.value("prepend_scheme", part.value("add_prefix_space", true) ? "always" : "never") != "never";
  }
  return adds;
}

// llama.cpp normalizes no texts of byte-level tokenizers. Qwen's have NFC, which changes few texts: those that write a
// letter and its accent as two characters.
void check_byte_level_normalizer(const json& file, const std::string& where) {
  for (const json& part : parts_of(file, "normalizer", "normalizers")) {
    if (is_type(part, "NFC")) continue;
    refuse(where + ": normalizer", fmt::format("GGUF does not have the step \"{}\"", part.value("type", "")));
  }
}

// Some models do not mark such tokens as special, but they control the text. llama.cpp's converter does the same.
bool looks_special(const std::string& token) {
  return (token.starts_with("<|") && token.ends_with("|>")) || token == "<pad>";
}

struct Vocabulary {
  std::vector<std::string> tokens;
  std::vector<int32_t> types;
  std::vector<float> scores;  // only of SentencePiece's style
};

bool is_byte_token(const std::string& token) {
  return token.size() == 6 && token.starts_with("<0x") && token.ends_with(">");
}

// The left and right part of a merge, in either of the two forms that files have.
std::pair<std::string, std::string> merge_of(const json& merge) {
  if (merge.is_array()) return {merge.at(0).get<std::string>(), merge.at(1).get<std::string>()};
  const auto& text = merge.get_ref<const std::string&>();
  const size_t space = text.find(' ');
  return {text.substr(0, space), text.substr(space + 1)};
}

// All ids of the embedding get a token. Tokens beyond it get none.
Vocabulary vocabulary_of(const json& file, const Tokenizer& tokenizer, int64_t size, bool is_byte_level,
                         std::vector<std::string>& notes) {
  Vocabulary vocabulary;
  for (int64_t id = 0; id < size; ++id) {
    vocabulary.tokens.push_back(fmt::format("[PAD{}]", id));
    vocabulary.types.push_back(kUnused);
  }
  const json& model = file.at("model");
  const auto unknown = model.find("unk_token");
  int64_t num_beyond = 0;
  const auto set = [&](const std::string& token, int64_t id, int32_t type) {
    if (id >= size) {
      ++num_beyond;
      return;
    }
    vocabulary.tokens[static_cast<size_t>(id)] = token;
    vocabulary.types[static_cast<size_t>(id)] = type;
  };
  for (const auto& [token, id] : model.at("vocab").items()) {
    const bool is_unknown = !is_byte_level && unknown != model.end() && *unknown == token;
    set(token, id.get<int64_t>(), is_unknown ? kUnknown : !is_byte_level && is_byte_token(token) ? kByte : kNormal);
  }
  if (const auto added = file.find("added_tokens"); added != file.end() && added->is_array()) {
    for (const json& entry : *added) {
      std::string token = entry.value("content", "");
      const auto id = tokenizer.id_of(token);
      if (!id || (!is_byte_level && unknown != model.end() && *unknown == token)) continue;
      const bool controls = tokenizer.is_special(*id) || looks_special(token);
      // llama.cpp compares a token of the user with texts, which have spaces.
      for (size_t at = 0; !controls && (at = token.find(kSpace)) != token.npos;) {
        token.replace(at, std::string_view(kSpace).size(), " ");
      }
      set(token, *id, controls ? kControl : kUserDefined);
    }
  }
  if (num_beyond > 0) {
    notes.push_back(fmt::format("{} tokens have no row in the embedding, and are not in the file", num_beyond));
  }
  if (is_byte_level) return vocabulary;
  // llama.cpp joins the pair with the highest score first, and a merge of a lower rank comes first. Tokens that no
  // merge makes come last.
  const json& merges = model.at("merges");
  vocabulary.scores.assign(static_cast<size_t>(size), -static_cast<float>(merges.size() + 1));
  for (size_t rank = merges.size(); rank-- > 0;) {
    const auto [left, right] = merge_of(merges[rank]);
    const auto id = tokenizer.id_of(left + right);
    if (id && *id < size) vocabulary.scores[static_cast<size_t>(*id)] = -static_cast<float>(rank);
  }
  return vocabulary;
}

std::vector<std::string> merges_of(const json& file) {
  std::vector<std::string> merges;
  for (const json& merge : file.at("model").at("merges")) {
    const auto [left, right] = merge_of(merge);
    merges.push_back(left + " " + right);
  }
  return merges;
}

const std::string* find_text(const std::vector<ModelFile>& files, const std::string& name) {
  const auto file = std::ranges::find(files, name, &ModelFile::name);
  return file == files.end() ? nullptr : &file->text;
}

// The id of a special token that a file names, or the id in config.json, or −1.
int32_t id_of_special(const char* key, const std::vector<ModelFile>& files, const Tokenizer& tokenizer,
                      int32_t in_config) {
  for (const char* name : {"tokenizer_config.json", "special_tokens_map.json"}) {
    const std::string* const text = find_text(files, name);
    if (!text) continue;
    const Record token = named_token(record_from_json(*text, name), key);
    if (!token.is_string()) continue;
    if (const auto id = tokenizer.id_of(token.get<std::string>())) return *id;
  }
  return in_config;
}

void add_special_tokens(const Tokenizer& tokenizer, const ModelConfig& config, const std::vector<ModelFile>& files,
                        GgufTokenizer& result) {
  const std::vector<int32_t> before = tokenizer.encode_at(TextPlace::start, ""),
                             both = tokenizer.encode_with_special("");
  const std::vector<int32_t> after(both.begin() + std::ssize(before), both.end());
  int32_t begin = id_of_special("bos_token", files, tokenizer, config.bos_token_id);
  // llama.cpp can put only one token before a text, and calls it BOS.
  if (before.size() == 1) begin = before[0];
  if (before.size() > 1 || after.size() > 1) {
    result.notes.push_back(
        fmt::format("the tokenizer puts {} tokens around a text, but llama.cpp at most one on each "
                    "side",
                    both.size()));
  }
  const std::pair<const char*, int32_t> ids[] = {
      {"bos", begin},
      {"eos", config.eos_token_id},
      {"unknown", id_of_special("unk_token", files, tokenizer, config.unk_token_id)},
      {"padding", id_of_special("pad_token", files, tokenizer, config.pad_token_id)},
  };
  for (const auto& [word, id] : ids) {
    if (id < 0 || id >= config.vocab_size) continue;
    result.keys.push_back({fmt::format("tokenizer.ggml.{}_token_id", word), static_cast<uint32_t>(id)});
  }
  result.keys.push_back({"tokenizer.ggml.add_bos_token", !before.empty()});
  result.keys.push_back({"tokenizer.ggml.add_eos_token", !after.empty()});
}

// The templates by name, "default" first, from the first place that transformers looks at.
std::vector<std::pair<std::string, std::string>> templates_of(const std::vector<ModelFile>& files) {
  std::vector<std::pair<std::string, std::string>> templates;
  const auto add = [&](const json& value) {
    if (value.is_string()) templates.emplace_back("default", value.get<std::string>());
    if (!value.is_array()) return;
    for (const json& entry : value) {
      if (entry.is_object() && entry.contains("name") && entry.contains("template")) {
        templates.emplace_back(entry.at("name").get<std::string>(), entry.at("template").get<std::string>());
      }
    }
  };
  if (const std::string* const text = find_text(files, "chat_template.jinja")) {
    templates.emplace_back("default", *text);
  } else {
    for (const char* name : {"tokenizer_config.json", "chat_template.json"}) {
      const std::string* const file = find_text(files, name);
      if (!file || !templates.empty()) continue;
      const json content = parse_json<json>(*file, name);
      if (content.is_object() && content.contains("chat_template")) add(content.at("chat_template"));
    }
  }
  for (const ModelFile& file : files) {
    const std::filesystem::path path = file.name;
    if (path.parent_path() == kChatTemplates) templates.emplace_back(path.stem().string(), file.text);
  }
  return templates;
}

void add_chat_templates(const std::vector<ModelFile>& files, GgufKeys& keys) {
  std::vector<std::string> names;
  for (auto& [name, text] : templates_of(files)) {
    if (name == "default") {
      keys.push_back({"tokenizer.chat_template", text});
      continue;
    }
    std::string word = name;
    std::ranges::replace_if(
        word, [](unsigned char c) { return !std::isalnum(c); }, '_');
    keys.push_back({"tokenizer.chat_template." + word, text});
    names.push_back(word);
  }
  if (!names.empty()) keys.push_back({"tokenizer.chat_templates", names});
}

}  // namespace

GgufTokenizer gguf_tokenizer(const Tokenizer& tokenizer, const ModelConfig& config, const std::vector<ModelFile>& files,
                             const std::string& where) {
  const auto file = parse_json<json>(tokenizer.json_text(), where);
  const std::vector<json> steps = parts_of(file, "pre_tokenizer", "pretokenizers");
  const bool is_byte_level = !steps.empty() && is_type(steps.back(), "ByteLevel");
  GgufTokenizer result;
  GgufKeys& keys = result.keys;
  keys.push_back({"tokenizer.ggml.model", std::string(is_byte_level ? "gpt2" : "llama")});
  if (is_byte_level) {
    check_byte_level_normalizer(file, where);
    keys.push_back({"tokenizer.ggml.pre", pre_tokenizer_of(file, where)});
  } else {
    if (!file.at("model").value("byte_fallback", false)) refuse(where + ": model", "byte_fallback is false");
    keys.push_back({"tokenizer.ggml.pre", std::string("default")});
    keys.push_back({"tokenizer.ggml.add_space_prefix", adds_space(file, where)});
  }
  Vocabulary vocabulary = vocabulary_of(file, tokenizer, config.vocab_size, is_byte_level, result.notes);
  keys.push_back({"tokenizer.ggml.tokens", std::move(vocabulary.tokens)});
  if (!is_byte_level) keys.push_back({"tokenizer.ggml.scores", std::move(vocabulary.scores)});
  keys.push_back({"tokenizer.ggml.token_type", std::move(vocabulary.types)});
  if (is_byte_level) keys.push_back({"tokenizer.ggml.merges", merges_of(file)});
  add_special_tokens(tokenizer, config, files, result);
  add_chat_templates(files, keys);
  return result;
}

}  // namespace tessera
