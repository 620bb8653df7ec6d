#include "tessera/data/tokenizer.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <unordered_map>
#include <unordered_set>

#include "tessera/base/error.h"
#include "tessera/base/read_file.h"
#include "tessera/data/bpe.h"
#include "tessera/data/tokenizer_json.h"

namespace tessera {

namespace {

// Longer texts would overflow positions within one word.
constexpr size_t kLongestText = (1u << 30) - 1;  // bytes; leaves room for a prefix space per byte

struct Step {
  bool add_prefix_space;
  std::optional<Splitter> splitter;  // unless add_prefix_space
};

// Working memory of encode(). The tokenizer keeps them, because the word cache pays off only when it is reused.
struct Scratch {
  WordCache cache;
  Bpe::Scratch bpe;
  std::vector<AddedTokenFinder::Part> parts, inner_parts;
  std::vector<Span> pieces, next_pieces, matches;
  std::string prefixed;  // the text with the spaces of add_prefix_space
};

// The unused Scratch objects. The mutex is the only state that encoding threads share.
class ScratchPool {
 public:
  std::unique_ptr<Scratch> take() {
    {
      const std::lock_guard lock(mutex_);
      if (!free_.empty()) {
        auto scratch = std::move(free_.back());
        free_.pop_back();
        return scratch;
      }
    }
    return std::make_unique<Scratch>();
  }
  void give_back(std::unique_ptr<Scratch> scratch) {
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(scratch));
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Scratch>> free_;
};

// Converts between bytes and the symbols that represent them in tokens.
class ByteSymbols {
 public:
  ByteSymbols() {
    const auto codes = byte_symbols();
    for (size_t byte = 0; byte < codes.size(); ++byte) {
      append_code_point(symbols_[byte], codes[byte]);
      if (codes[byte] >= bytes_.size()) bytes_.resize(codes[byte] + 1, -1);
      bytes_[codes[byte]] = static_cast<int16_t>(byte);
    }
  }
  const std::string& symbol(uint8_t byte) const { return symbols_[byte]; }
  std::string symbols(std::string_view bytes) const {
    std::string result;
    for (const char c : bytes) result += symbols_[static_cast<uint8_t>(c)];
    return result;
  }
  // The bytes of a token written in symbols. A token with any other character represents its own UTF-8 bytes.
  std::string bytes(const std::string& token) const {
    std::string result;
    for (size_t at = 0; at < token.size();) {
      const CodePoint c = code_point_at(token, at);
      if (c.code >= bytes_.size() || bytes_[c.code] < 0) return token;
      result += static_cast<char>(bytes_[c.code]);
      at += c.num_bytes;
    }
    return result;
  }

 private:
  std::array<std::string, 256> symbols_;
  std::vector<int16_t> bytes_;  // by code point; −1 if it is not a symbol
};

}  // namespace

struct Tokenizer::State {
  const std::string json_text;
  const std::vector<std::string> unused_keys;
  const std::vector<NormalForm> normal_forms;
  const ByteSymbols byte_symbols;
  std::vector<Step> steps;
  std::unordered_map<std::string, int32_t> vocabulary, added;  // token -> id
  AddedTokenFinder raw_added, normalized_added;
  std::vector<std::string> bytes;  // id -> decoded bytes; empty if there is no token
  std::vector<bool> special;       // id -> omitted by skip_special
  std::optional<Bpe> bpe;          // set by the constructor
  const bool ignore_merges;        // a word in the vocabulary is one token, whatever the merges would give
  mutable ScratchPool scratches;

  State(const TokenizerJson& json, std::string_view text, const std::string& where);
  void add_tokens(const std::vector<AddedToken>& tokens, const std::string& where);
  Bpe make_bpe(const TokenizerJson& json, const std::string& where) const;

  void encode(std::string_view text, Scratch& scratch, std::vector<int32_t>& ids) const;
  void encode_plain(std::string_view text, Scratch& scratch, std::vector<int32_t>& ids) const;
  void encode_word(std::string_view word, Scratch& scratch, std::vector<int32_t>& ids) const;
};

Tokenizer::State::State(const TokenizerJson& json, std::string_view text, const std::string& where)
    : json_text(text), unused_keys(json.unused), normal_forms(json.normal_forms), ignore_merges(json.ignore_merges) {
  for (const SplitStep& step : json.steps) {
    steps.push_back({step.add_prefix_space, std::nullopt});
    if (step.add_prefix_space) continue;
    steps.back().splitter.emplace(make_matcher(step.pattern, step.where), step.behavior, step.invert);
  }
  int32_t size = 0;
  for (const auto& [token, id] : json.vocabulary) size = std::max(size, id + 1);
  bytes.resize(static_cast<size_t>(size));
  vocabulary.reserve(json.vocabulary.size());
  for (const auto& [token, id] : json.vocabulary) {
    vocabulary.emplace(token, id);
    bytes[static_cast<size_t>(id)] = byte_symbols.bytes(token);
  }
  add_tokens(json.added_tokens, where);
  bpe.emplace(make_bpe(json, where));
}

// Follows tokenizers' AddedVocabulary::add_tokens. The id is the vocabulary's, or else the next free one; the file's id
// is ignored. Of two entries with the same content, the last one counts.
void Tokenizer::State::add_tokens(const std::vector<AddedToken>& tokens, const std::string& where) {
  auto next_id = static_cast<int32_t>(vocabulary.size());
  std::map<int32_t, const AddedToken*> by_id;
  std::unordered_set<std::string> specials;
  for (const AddedToken& token : tokens) {
    if (token.content.empty()) continue;
    const auto known = vocabulary.find(token.content);
    const auto [entry, is_new] = added.try_emplace(token.content, 0);
    if (is_new) entry->second = known != vocabulary.end() ? known->second : next_id++;
    by_id[entry->second] = &token;
    if (token.special) specials.insert(token.content);
  }
  bytes.resize(std::max(bytes.size(), by_id.empty() ? 0 : static_cast<size_t>(by_id.rbegin()->first) + 1));
  special.resize(bytes.size());
  for (const auto& [id, token] : by_id) {
    const std::string form = token->normalized ? normalize(token->content, normal_forms) : token->content;
    if (!(token->normalized ? normalized_added : raw_added).add(form, *token, id)) {
      throw InputError(where + ": added_tokens", "two tokens are spelled " + quoted_token(form) + " when normalized",
                       "Remove one of them");
    }
    bytes[static_cast<size_t>(id)] = byte_symbols.bytes(form);
    special[static_cast<size_t>(id)] = specials.contains(form);
  }
}

Bpe Tokenizer::State::make_bpe(const TokenizerJson& json, const std::string& where) const {
  const auto id_or_none = [&](const std::string& token) {
    const auto found = vocabulary.find(token);
    return found == vocabulary.end() ? -1 : found->second;
  };
  std::array<int32_t, 256> byte_ids{};
  for (size_t byte = 0; byte < 256; ++byte) {
    byte_ids[byte] = id_or_none(byte_symbols.symbol(static_cast<uint8_t>(byte)));
  }
  const int32_t unk_id = json.unk_token ? id_or_none(*json.unk_token) : -1;
  if (json.unk_token && unk_id < 0) {
    throw InputError(where + ": model.unk_token",
                     "the token " + quoted_token(*json.unk_token) + " is not in the vocabulary",
                     "Use a token from the vocabulary, or null");
  }
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
  return Bpe(byte_ids, merges, unk_id, json.fuse_unk);
}

void Tokenizer::State::encode(std::string_view text, Scratch& scratch, std::vector<int32_t>& ids) const {
  if (text.size() > kLongestText) {
    throw InputError("", "a text of " + std::to_string(text.size()) + " bytes",
                     "Split it into texts of at most " + std::to_string(kLongestText) + " bytes");
  }
  std::string repaired, normalized;
  if (!is_utf8(text)) {
    append_repaired_utf8(repaired, text);
    text = repaired;
  }
  scratch.parts.clear();
  raw_added.find(text, scratch.parts);
  for (const auto& part : scratch.parts) {
    if (part.id >= 0) {
      ids.push_back(part.id);
      continue;
    }
    std::string_view piece = text.substr(part.begin, part.end - part.begin);
    if (!normal_forms.empty()) piece = normalized = normalize(piece, normal_forms);
    scratch.inner_parts.clear();
    normalized_added.find(piece, scratch.inner_parts);
    for (const auto& inner : scratch.inner_parts) {
      if (inner.id >= 0) {
        ids.push_back(inner.id);
      } else {
        encode_plain(piece.substr(inner.begin, inner.end - inner.begin), scratch, ids);
      }
    }
  }
}

// Encodes text without added tokens.
void Tokenizer::State::encode_plain(std::string_view text, Scratch& scratch, std::vector<int32_t>& ids) const {
  auto& pieces = scratch.pieces;
  pieces.assign(1, {0, text.size()});
  for (const Step& step : steps) {
    scratch.next_pieces.clear();
    if (step.add_prefix_space) {
      scratch.prefixed.clear();
      for (const Span& piece : pieces) {
        const size_t begin = scratch.prefixed.size();
        if (text[piece.begin] != ' ') scratch.prefixed += ' ';
        scratch.prefixed += text.substr(piece.begin, piece.end - piece.begin);
        scratch.next_pieces.push_back({begin, scratch.prefixed.size()});
      }
      text = scratch.prefixed;
    } else {
      for (const Span& piece : pieces) step.splitter->split(text, piece, scratch.matches, scratch.next_pieces);
    }
    pieces.swap(scratch.next_pieces);
  }
  for (const Span& piece : pieces) encode_word(text.substr(piece.begin, piece.end - piece.begin), scratch, ids);
}

void Tokenizer::State::encode_word(std::string_view word, Scratch& scratch, std::vector<int32_t>& ids) const {
  const bool cacheable = word.size() <= WordCache::kLongestWord;
  const uint64_t hash = cacheable ? WordCache::hash(word) : 0;
  if (cacheable && scratch.cache.append(word, hash, ids)) return;
  const size_t before = ids.size();
  const auto known = ignore_merges ? vocabulary.find(byte_symbols.symbols(word)) : vocabulary.end();
  if (known != vocabulary.end()) {
    ids.push_back(known->second);
  } else {
    bpe->encode(word, scratch.bpe, ids);
  }
  if (cacheable) scratch.cache.insert(word, hash, std::span(ids).subspan(before));
}

Tokenizer::Tokenizer(std::unique_ptr<const State> state) : state_(std::move(state)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Tokenizer Tokenizer::load(const std::filesystem::path& tokenizer_json) {
  const ReadOptions options{.remedy = "Give the tokenizer.json of a model folder"};
  return from_json_text(read_file(tokenizer_json, options), tokenizer_json.string());
}

Tokenizer Tokenizer::from_json_text(std::string_view text, const std::string& where) {
  return Tokenizer(std::make_unique<const State>(parse_tokenizer_json(text, where), text, where));
}

const std::vector<std::string>& Tokenizer::unused_keys() const {
  return state_->unused_keys;
}

std::vector<int32_t> Tokenizer::encode(std::string_view text) const {
  std::vector<int32_t> ids;
  auto scratch = state_->scratches.take();
  state_->encode(text, *scratch, ids);
  state_->scratches.give_back(std::move(scratch));
  return ids;
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
  std::string bytes;
  for (const int32_t id : ids) {
    if (id < 0 || id >= vocab_size() || (skip_special && is_special(id))) continue;
    bytes += state_->bytes[static_cast<size_t>(id)];
  }
  if (is_utf8(bytes)) return bytes;
  std::string text;
  append_repaired_utf8(text, bytes);
  return text;
}

int32_t Tokenizer::vocab_size() const {
  return static_cast<int32_t>(state_->bytes.size());
}

std::optional<int32_t> Tokenizer::id_of(std::string_view token) const {
  for (const auto* map : {&state_->added, &state_->vocabulary}) {
    if (const auto found = map->find(std::string(token)); found != map->end()) return found->second;
  }
  return std::nullopt;
}

bool Tokenizer::is_special(int32_t id) const {
  return id >= 0 && id < vocab_size() && state_->special[static_cast<size_t>(id)];
}

const std::string& Tokenizer::json_text() const {
  return state_->json_text;
}

}  // namespace tessera
