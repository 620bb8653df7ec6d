#include "tessera/data/tokenizer_json.h"

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/base/json.h"
#include "tessera/data/tokenizer_json_node.h"

namespace tessera {

using Json = nlohmann::json;

namespace {

using Node = TokenizerNode;

AddedToken read_added_token(const Node& node) {
  return {.content = node.at("content").text(),
          .single_word = node.at("single_word").flag(),
          .lstrip = node.at("lstrip").flag(),
          .rstrip = node.at("rstrip").flag(),
          .normalized = node.at("normalized").flag(),
          .special = node.at("special").flag()};
}

// Rejects models that Tessera cannot run.
void refuse_other_models(const Node& model) {
  if (model.has("type") && model.type() != "BPE") {
    model.fail("the tokenizer is of type " + quoted_token(model.type()), kKindsOfTokenizers);
  }
  for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (model.has(affix) && !model.at(affix).text().empty()) {
      model.at(affix).fail("is " + quoted_token(model.at(affix).text()) + ", but must be empty", kKindsOfTokenizers);
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
  if (!node.json.is_object()) node.fail("expected an object of tokens and ids", kKindsOfTokenizers);
  // The tokenizer's tables have one entry for each id from 0 to the largest id. If an id were much larger than the
  // number of tokens, these tables would exhaust the memory.
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

// Call refuse_other_models() first.
void read_model(const Node& model, TokenizerJson& result) {
  read_vocabulary(model.at("vocab"), result);
  read_merges(model.at("merges"), result);
  if (model.has("unk_token")) result.unk_token = model.at("unk_token").text();
  result.fuse_unk = model.flag("fuse_unk", false);
  result.byte_fallback = model.flag("byte_fallback", false);
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
  const Json json = parse_json(text, where, kDamagedTokenizer);
  const Node root{json, where + ": "};
  const Node document{json, where};
  if (!json.is_object()) document.fail(std::string("expected an object, found ") + json.type_name());
  if (root.has("version") && root.at("version").text() != "1.0") {
    root.at("version").fail("the format has version " + quoted_token(root.at("version").text()),
                            "Tessera reads version 1.0");
  }
  if (!root.has("model"))
    document.fail("the key \"model\" is missing", "Give a tokenizer.json of Hugging Face tokenizers");
  TokenizerJson result;
  const Node model = root.at("model");
  // First, because files of other models also differ in other parts. An error about such a part would hide the cause.
  refuse_other_models(model);
  read_tokenizer_steps(root, result);
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
