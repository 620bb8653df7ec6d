// Makes a Tokenizer from the content of its file.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_set>

#include "tessera/base/error.h"
#include "tessera/data/tokenizer_state.h"

namespace tessera {

namespace {

// Returns whether a text can be cut before every "▁" that does not follow another "▁", and still has the same tokens.
// All of these conditions must hold: the tokenizer is not byte-level and does not set ignore_merges, "▁" is in the
// vocabulary, the unknown token does not end with "▁", and no merge joins characters across such a cut. Cuts are useful
// without a pre-tokenizer: a complete text would be one word, but the word cache can find only short words again.
bool can_cut_at_metaspace(const TokenizerJson& json, const BpeAlphabet& alphabet) {
  if (json.byte_level || json.ignore_merges) return false;
  if (!alphabet.characters.find(code_point_at(kMetaspace, 0).code)) return false;
  if (json.unk_token && json.unk_token->ends_with(kMetaspace)) return false;
  return std::none_of(json.merges.begin(), json.merges.end(), [](const auto& merge) {
    return merge.second.starts_with(kMetaspace) && !merge.first.ends_with(kMetaspace);
  });
}

}  // namespace

Tokenizer::State::State(const TokenizerJson& json, std::string_view text, const std::string& where)
    : json_text(text),
      unused_keys(json.unused),
      normalizer(json.normalizer),
      decoder(json.decoder),
      frame(json.frame),
      byte_level(json.byte_level),
      ignore_merges(json.ignore_merges) {
  for (const SplitStep& step : json.steps) {
    steps.push_back({step.kind, std::nullopt, step.metaspace, step.prefix});
    if (step.kind != SplitStep::Kind::split) continue;
    steps.back().splitter.emplace(make_matcher(step.pattern, step.where), step.behavior, step.invert);
  }
  vocabulary.reserve(json.vocabulary.size());
  for (const auto& [token, id] : json.vocabulary) {
    vocabulary.emplace(token, id);
    set_token(id, token);
  }
  add_tokens(json.added_tokens, where);
  BpeAlphabet alphabet = make_alphabet(json, where);
  cuts_at_metaspace = can_cut_at_metaspace(json, alphabet);
  bpe.emplace(std::move(alphabet), make_merges(json));
  check_frame();
}

void Tokenizer::State::set_token(int32_t id, const std::string& token) {
  const auto index = static_cast<size_t>(id);
  if (index >= tokens.size()) {
    tokens.resize(index + 1);
    present.resize(index + 1);
    special.resize(index + 1);
  }
  tokens[index] = decoder.is_byte_level() ? byte_symbols.bytes(token) : token;
  present[index] = true;
}

int32_t Tokenizer::State::id_or_none(const std::string& token) const {
  const auto found = vocabulary.find(token);
  return found == vocabulary.end() ? -1 : found->second;
}

void Tokenizer::State::check_frame() const {
  for (const auto* ids : {&frame.before, &frame.after}) {
    for (const int32_t id : *ids) {
      if (static_cast<size_t>(id) < tokens.size() && present[static_cast<size_t>(id)]) continue;
      throw InputError(frame.where, "the template adds the id " + std::to_string(id) + ", which no token has",
                       "The file is damaged: use the tokenizer.json that came with the model");
    }
  }
}

// Follows AddedVocabulary::add_tokens of Hugging Face's tokenizers. An added token that is also in the vocabulary has
// the same id as there. The other added tokens get the next ids after the vocabulary. The ids that the file gives to
// added tokens are ignored. If several entries have the same content, the last entry counts. But the token is special
// if any of these entries is special.
void Tokenizer::State::add_tokens(const std::vector<AddedToken>& list, const std::string& where) {
  auto next_id = static_cast<int32_t>(vocabulary.size());
  std::map<int32_t, const AddedToken*> by_id;
  std::unordered_set<std::string> specials;
  for (const AddedToken& token : list) {
    if (token.content.empty()) continue;
    const auto known = vocabulary.find(token.content);
    const auto [entry, is_new] = added.try_emplace(token.content, 0);
    if (is_new) entry->second = known != vocabulary.end() ? known->second : next_id++;
    by_id[entry->second] = &token;
    if (token.special) specials.insert(token.content);
  }
  for (const auto& [id, token] : by_id) {
    const std::string form = token->normalized ? normalizer(token->content, false) : token->content;
    if (form.empty()) {
      throw InputError(where + ": added_tokens",
                       "the normalizer changes the token " + quoted_token(token->content) + " into an empty text",
                       "Remove the token, or set its \"normalized\" to false");
    }
    if (!(token->normalized ? normalized_added : raw_added).add(form, *token, id)) {
      throw InputError(where + ": added_tokens", "two tokens are both " + quoted_token(form) + " after normalization",
                       "Remove one of them");
    }
    set_token(id, form);
    special[static_cast<size_t>(id)] = specials.contains(form);
  }
}

BpeAlphabet Tokenizer::State::make_alphabet(const TokenizerJson& json, const std::string& where) const {
  BpeAlphabet alphabet;
  alphabet.by_character = !byte_level;
  alphabet.byte_fallback = json.byte_fallback && !byte_level;
  alphabet.fuse_unk = json.fuse_unk;
  for (size_t byte = 0; byte < 256; ++byte) {
    alphabet.bytes[byte] = id_or_none(byte_symbols.symbol(static_cast<uint8_t>(byte)));
    alphabet.fallback_bytes[byte] = id_or_none(fmt::format("<0x{:02X}>", byte));
    if (byte_level && json.byte_fallback && alphabet.bytes[byte] < 0) {
      throw InputError(
          where + ": model.byte_fallback",
          "is set for a byte-level vocabulary without " + quoted_token(byte_symbols.symbol(static_cast<uint8_t>(byte))),
          "Use a vocabulary with all bytes");
    }
  }
  for (const auto& [token, id] : json.vocabulary) {
    if (token.empty()) continue;
    const CodePoint c = code_point_at(token, 0);
    if (c.num_bytes == token.size()) alphabet.characters.set(c.code, static_cast<uint64_t>(id));
  }
  if (!json.unk_token) return alphabet;
  alphabet.unk_id = id_or_none(*json.unk_token);
  if (alphabet.unk_id < 0) {
    throw InputError(where + ": model.unk_token",
                     "the token " + quoted_token(*json.unk_token) + " is not in the vocabulary",
                     "Use a token from the vocabulary, or null");
  }
  return alphabet;
}

std::vector<BpeMerge> Tokenizer::State::make_merges(const TokenizerJson& json) const {
  std::vector<BpeMerge> merges;
  merges.reserve(json.merges.size());
  for (const auto& [left, right] : json.merges) {
    const BpeMerge merge{id_or_none(left), id_or_none(right), id_or_none(left + right)};
    if (merge.left < 0 || merge.right < 0 || merge.result < 0) {
      const std::string missing = merge.left < 0 ? left : merge.right < 0 ? right : left + right;
      throw InputError(json.merges_where + "[" + std::to_string(merges.size()) + "]",
                       "the merge of " + quoted_token(left) + " and " + quoted_token(right) + " needs the token " +
                           quoted_token(missing) + ", which is not in the vocabulary",
                       "The file is damaged: use the tokenizer.json that came with the model");
    }
    merges.push_back(merge);
  }
  return merges;
}

}  // namespace tessera
