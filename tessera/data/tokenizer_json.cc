#include "tessera/data/tokenizer_json.h"

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/base/json.h"

namespace tessera {

using Json = nlohmann::json;

namespace {

constexpr const char* kKinds = "Tessera reads byte-level BPE tokenizers (those of BLOOM, GPT-2, Llama 3, Qwen2)";
constexpr const char* kDamaged = "The file is damaged: use the tokenizer.json that came with the model";

// A JSON value and its place, for errors.
struct Node {
  const Json& json;
  std::string where;

  [[noreturn]] void fail(const std::string& what, const std::string& remedy = kDamaged) const {
    throw InputError(where, what, remedy);
  }
  Node at(const char* key) const {
    if (!json.is_object()) fail(std::string("expected an object, found ") + json.type_name());
    const auto found = json.find(key);
    if (found == json.end()) fail(std::string("the key \"") + key + "\" is missing");
    return {*found, child(key)};
  }
  bool has(const char* key) const {
    if (!json.is_object()) return false;
    const auto found = json.find(key);
    return found != json.end() && !found->is_null();
  }
  std::string child(const std::string& key) const { return where + (where.ends_with(": ") ? "" : ".") + key; }
  Node operator[](size_t i) const { return {json[i], where + "[" + std::to_string(i) + "]"}; }
  const std::string& text() const {
    if (!json.is_string()) fail(std::string("expected a string, found ") + json.type_name());
    return json.get_ref<const std::string&>();
  }
  bool flag() const {
    if (!json.is_boolean()) fail(std::string("expected true or false, found ") + json.type_name());
    return json.get<bool>();
  }
  bool flag(const char* key, bool otherwise) const { return has(key) ? at(key).flag() : otherwise; }
  size_t array_size() const {
    if (!json.is_array()) fail(std::string("expected an array, found ") + json.type_name());
    return json.size();
  }
  std::string type() const { return at("type").text(); }
};

// Sequences may contain sequences. parse_json() limits the depth.
void read_normalizer(const Node& node, std::vector<NormalForm>& forms) {
  if (node.json.is_null()) return;
  const std::string type = node.type();
  if (type == "Sequence") {
    const Node list = node.at("normalizers");
    for (size_t i = 0; i < list.array_size(); ++i) read_normalizer(list[i], forms);
  } else if (type == "NFC") {
    forms.push_back(NormalForm::nfc);
  } else if (type == "NFD") {
    forms.push_back(NormalForm::nfd);
  } else if (type == "NFKC") {
    forms.push_back(NormalForm::nfkc);
  } else if (type == "NFKD") {
    forms.push_back(NormalForm::nfkd);
  } else {
    node.fail("the normalizer is of type " + quoted_token(type),
              std::string(kKinds) + " with no normalizer or NFC, NFD, NFKC, NFKD");
  }
}

SplitBehavior read_behavior(const Node& node) {
  const std::string& name = node.text();
  if (name == "Removed") return SplitBehavior::removed;
  if (name == "Isolated") return SplitBehavior::isolated;
  if (name == "MergedWithPrevious") return SplitBehavior::merged_with_previous;
  if (name == "MergedWithNext") return SplitBehavior::merged_with_next;
  if (name == "Contiguous") return SplitBehavior::contiguous;
  node.fail("no split behavior is called " + quoted_token(name),
            "Use Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous");
}

std::string read_pattern(const Node& node) {
  if (node.has("Regex")) return node.at("Regex").text();
  if (!node.has("String")) node.fail("expected {\"Regex\": ...} or {\"String\": ...}");
  std::string escaped;
  for (const char c : node.at("String").text()) {
    if (std::string_view("\\.+*?()|[]{}^$#&-~").find(c) != std::string_view::npos) escaped += '\\';
    escaped += c;
  }
  return escaped;
}

void read_byte_level(const Node& node, std::vector<SplitStep>& steps) {
  if (node.flag("add_prefix_space", true)) steps.push_back({.add_prefix_space = true, .pattern = "", .where = ""});
  if (node.flag("use_regex", true)) steps.push_back({.pattern = kGpt2Pattern, .where = node.where});
}

// byte_level is set if the last pre-tokenizer so far was ByteLevel.
void read_pre_tokenizer(const Node& node, std::vector<SplitStep>& steps, bool& byte_level) {
  if (node.json.is_null()) node.fail("the pre-tokenizer is null", kKinds);
  const std::string type = node.type();
  if (type == "Sequence") {
    const Node list = node.at("pretokenizers");
    for (size_t i = 0; i < list.array_size(); ++i) read_pre_tokenizer(list[i], steps, byte_level);
    return;
  }
  if (byte_level) node.fail("a pre-tokenizer of type " + quoted_token(type) + " comes after ByteLevel", kKinds);
  if (type == "ByteLevel") {
    read_byte_level(node, steps);
    byte_level = true;
  } else if (type == "Split") {
    const Node pattern = node.at("pattern");
    steps.push_back({.pattern = read_pattern(pattern),
                     .behavior = read_behavior(node.at("behavior")),
                     .invert = node.at("invert").flag(),
                     .where = pattern.where});
  } else if (type == "Digits") {
    const bool single = node.at("individual_digits").flag();
    steps.push_back({.pattern = R"(\p{N})",
                     .behavior = single ? SplitBehavior::isolated : SplitBehavior::contiguous,
                     .where = node.where});
  } else {
    node.fail("the pre-tokenizer is of type " + quoted_token(type), kKinds);
  }
}

AddedToken read_added_token(const Node& node) {
  return {.content = node.at("content").text(),
          .single_word = node.at("single_word").flag(),
          .lstrip = node.at("lstrip").flag(),
          .rstrip = node.at("rstrip").flag(),
          .normalized = node.at("normalized").flag(),
          .special = node.at("special").flag()};
}

// Rejects BPE models that are not byte-level BPE.
void refuse_other_models(const Node& model) {
  if (model.has("type") && model.type() != "BPE") {
    model.fail("the tokenizer is of type " + quoted_token(model.type()), kKinds);
  }
  if (model.flag("byte_fallback", false)) {
    model.fail("byte_fallback is set: this is a SentencePiece tokenizer (Llama 1 and 2, Mistral, Gemma)", kKinds);
  }
  for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (model.has(affix) && !model.at(affix).text().empty()) {
      model.at(affix).fail("tokens have the affix " + quoted_token(model.at(affix).text()), kKinds);
    }
  }
  if (model.has("dropout")) {
    const Node dropout = model.at("dropout");
    if (!dropout.json.is_number()) dropout.fail("expected a number, found " + std::string(dropout.json.type_name()));
    if (dropout.json.get<double>() != 0) {
      dropout.fail("merges are dropped at random (" + dropout.json.dump() + ")", "Set dropout to null");
    }
  }
}

void read_vocabulary(const Node& node, TokenizerJson& result) {
  if (!node.json.is_object()) node.fail("expected an object of tokens and ids", kKinds);
  // Ids index tables. An id far beyond the number of tokens would exhaust the memory.
  const auto end_of_ids = static_cast<int64_t>(std::min<size_t>(4 * node.json.size() + (1u << 16), INT32_MAX));
  result.vocabulary.reserve(node.json.size());
  std::vector<bool> taken(static_cast<size_t>(end_of_ids));
  for (auto entry = node.json.begin(); entry != node.json.end(); ++entry) {
    const auto value = [&] { return Node{*entry, node.where + "[" + quoted_token(entry.key()) + "]"}; };
    if (!entry->is_number_integer()) value().fail("expected an id, found " + std::string(entry->type_name()));
    const bool fits = entry->is_number_unsigned() && entry->get<uint64_t>() < static_cast<uint64_t>(end_of_ids);
    if (!fits) {
      value().fail("the id " + entry->dump() + " is not in [0, " + std::to_string(end_of_ids) + ")",
                   "A vocabulary of " + std::to_string(node.json.size()) + " tokens has no such id");
    }
    const auto id = entry->get<int32_t>();
    if (taken[static_cast<size_t>(id)])
      value().fail("the id " + std::to_string(id) + " belongs to another token already");
    taken[static_cast<size_t>(id)] = true;
    result.vocabulary.emplace_back(entry.key(), id);
  }
}

void read_merges(const Node& node, TokenizerJson& result) {
  const size_t count = node.array_size();
  result.merges_where = node.where;
  result.merges.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    const Json& merge = node.json[i];
    if (merge.is_string()) {
      const auto& text = merge.get_ref<const std::string&>();
      if (text.starts_with("#version")) continue;
      const size_t space = text.find(' ');
      if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) {
        node[i].fail("the merge " + quoted_token(text) + " is not two tokens with a space between them");
      }
      result.merges.emplace_back(text.substr(0, space), text.substr(space + 1));
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      result.merges.emplace_back(merge[0].get_ref<const std::string&>(), merge[1].get_ref<const std::string&>());
    } else {
      node[i].fail("expected \"a b\" or [\"a\", \"b\"], found " + std::string(merge.type_name()));
    }
  }
}

void read_model(const Node& model, TokenizerJson& result) {
  refuse_other_models(model);
  read_vocabulary(model.at("vocab"), result);
  read_merges(model.at("merges"), result);
  if (model.has("unk_token")) result.unk_token = model.at("unk_token").text();
  result.fuse_unk = model.flag("fuse_unk", false);
  result.ignore_merges = model.flag("ignore_merges", false);
}

}  // namespace

std::string quoted_token(std::string_view token) {
  constexpr size_t kLongest = 60;
  const bool cut = token.size() > kLongest;
  const std::string shown(token.substr(0, kLongest));
  return Json(shown).dump(-1, ' ', false, Json::error_handler_t::replace) + (cut ? "..." : "");
}

TokenizerJson parse_tokenizer_json(std::string_view text, const std::string& where) {
  const Json json = parse_json(text, where, kDamaged);
  const Node root{json, where + ": "};
  const Node version{json, where};
  if (!json.is_object()) version.fail(std::string("expected an object, found ") + json.type_name());
  if (root.has("version") && root.at("version").text() != "1.0") {
    root.at("version").fail("the format has version " + quoted_token(root.at("version").text()),
                            "Tessera reads version 1.0");
  }
  if (!root.has("model"))
    version.fail("the key \"model\" is missing", "Give a tokenizer.json of Hugging Face tokenizers");
  TokenizerJson result;
  const Node model = root.at("model");
  refuse_other_models(model);
  if (root.has("normalizer")) read_normalizer(root.at("normalizer"), result.normal_forms);

  bool byte_level = false;
  if (!root.has("pre_tokenizer")) version.fail("it has no pre_tokenizer, so this is not byte-level BPE", kKinds);
  read_pre_tokenizer(root.at("pre_tokenizer"), result.steps, byte_level);
  if (!byte_level)
    root.at("pre_tokenizer").fail("there is no ByteLevel pre-tokenizer, so this is not byte-level BPE", kKinds);
  if (!root.has("decoder") || root.at("decoder").type() != "ByteLevel") {
    throw InputError(root.child("decoder"), "the decoder is not ByteLevel", kKinds);
  }
  if (root.has("added_tokens")) {
    const Node list = root.at("added_tokens");
    for (size_t i = 0; i < list.array_size(); ++i) result.added_tokens.push_back(read_added_token(list[i]));
  }
  read_model(model, result);
  for (const char* key : {"truncation", "padding"}) {
    if (root.has(key)) result.unused.emplace_back(key);
  }
  return result;
}

}  // namespace tessera
