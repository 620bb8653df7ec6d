#include "tessera/data/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <unordered_map>
#include <unordered_set>

#include "tessera/base/error.h"
#include "tessera/base/read_file.h"
#include "tessera/data/bpe.h"
#include "tessera/data/tokenizer_decode.h"
#include "tessera/data/tokenizer_json.h"

namespace tessera {

namespace {

// Longer texts would overflow positions within one word.
constexpr size_t kLongestText = (1u << 30) - 1;  // bytes; leaves room for a prefix space per byte

struct Step {
  SplitStep::Kind kind;
  std::optional<Splitter> splitter;  // of split
  std::string metaspace;             // of metaspace
  MetaspacePrefix prefix;
};

// Where a text between added tokens stands.
enum class Place : uint8_t {
  beginning,   // of the complete text
  continuing,  // at the beginning of a text that continues another one
  elsewhere,
};

constexpr std::string_view kMetaspace = "\u2581";

// Working memory of encode(). The tokenizer keeps them, because the word cache pays off only when it is reused.
struct Scratch {
  WordCache cache;
  Bpe::Scratch bpe;
  std::vector<AddedTokenFinder::Part> parts, inner_parts;
  std::vector<Span> pieces, next_pieces, matches;
  std::string rewritten, next_rewritten;  // the text after steps that change it
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

}  // namespace

struct Tokenizer::State {
  const std::string json_text;
  const std::vector<std::string> unused_keys;
  const Normalizer normalizer;
  const Decoder decoder;
  const SpecialFrame frame;
  const bool byte_level;
  const ByteSymbols byte_symbols;
  std::vector<Step> steps;
  std::unordered_map<std::string, int32_t> vocabulary, added;  // token -> id
  AddedTokenFinder raw_added, normalized_added;
  std::vector<std::string> tokens;  // id -> the token; its bytes if the decoder is ByteLevel
  std::vector<bool> present;        // id -> whether there is such a token
  std::vector<bool> special;        // id -> omitted by skip_special
  std::optional<Bpe> bpe;           // set by the constructor
  const bool ignore_merges;         // a word in the vocabulary is one token, whatever the merges would give
  bool cuts_at_metaspace = false;   // no merge joins "▁" with another character on its left
  mutable ScratchPool scratches;

  State(const TokenizerJson& json, std::string_view text, const std::string& where);
  void set_token(int32_t id, const std::string& token);
  void add_tokens(const std::vector<AddedToken>& list, const std::string& where);
  BpeAlphabet make_alphabet(const TokenizerJson& json, const std::string& where) const;
  std::vector<BpeMerge> make_merges(const TokenizerJson& json) const;
  int32_t id_or_none(const std::string& token) const;
  void check_frame() const;

  void encode(std::string_view text, bool inside, Scratch& scratch, std::vector<int32_t>& ids) const;
  void encode_plain(std::string_view text, Place place, Scratch& scratch, std::vector<int32_t>& ids) const;
  std::string_view rewrite(const Step& step, std::string_view text, Place place, Scratch& scratch) const;
  void encode_word(std::string_view word, Scratch& scratch, std::vector<int32_t>& ids) const;
};

// Whether words may be cut before every "▁" that follows another character: neither merges nor unknown characters cross
// these places. Texts without a pre-tokenizer then consist of words that repeat.
static bool can_cut_at_metaspace(const TokenizerJson& json, const BpeAlphabet& alphabet) {
  if (json.byte_level || json.ignore_merges) return false;
  if (!alphabet.characters.find(code_point_at(kMetaspace, 0).code)) return false;
  if (json.unk_token && json.unk_token->ends_with(kMetaspace)) return false;
  return std::none_of(json.merges.begin(), json.merges.end(), [](const auto& merge) {
    return merge.second.starts_with(kMetaspace) && !merge.first.ends_with(kMetaspace);
  });
}

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

// Follows tokenizers' AddedVocabulary::add_tokens. The id is the vocabulary's, or else the next free one; the file's id
// is ignored. Of two entries with the same content, the last one counts.
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
                       "the token " + quoted_token(token->content) + " is empty when normalized", "Remove it");
    }
    if (!(token->normalized ? normalized_added : raw_added).add(form, *token, id)) {
      throw InputError(where + ": added_tokens", "two tokens are spelled " + quoted_token(form) + " when normalized",
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

void Tokenizer::State::encode(std::string_view text, bool inside, Scratch& scratch, std::vector<int32_t>& ids) const {
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
    if (!normalizer.does_nothing()) piece = normalized = normalizer(piece, inside && part.begin == 0);
    scratch.inner_parts.clear();
    normalized_added.find(piece, scratch.inner_parts);
    for (const auto& inner : scratch.inner_parts) {
      if (inner.id >= 0) {
        ids.push_back(inner.id);
        continue;
      }
      const bool first = part.begin == 0 && inner.begin == 0;
      const Place place = !first ? Place::elsewhere : inside ? Place::continuing : Place::beginning;
      encode_plain(piece.substr(inner.begin, inner.end - inner.begin), place, scratch, ids);
    }
  }
}

// Applies a step that changes the text to every piece. Replaces scratch.pieces, and returns the text they are in.
std::string_view Tokenizer::State::rewrite(const Step& step, std::string_view text, Place place,
                                           Scratch& scratch) const {
  std::string& result = scratch.next_rewritten;
  result.clear();
  for (Span& piece : scratch.pieces) {
    const std::string_view old = text.substr(piece.begin, piece.end - piece.begin);
    const Place here = &piece == &scratch.pieces.front() ? place : Place::elsewhere;
    const size_t begin = result.size();
    if (step.kind == SplitStep::Kind::prefix_space) {
      if (here != Place::continuing && !old.starts_with(' ')) result += ' ';
      result += old;
    } else {
      const bool wanted = step.prefix == MetaspacePrefix::always
                              ? here != Place::continuing
                              : step.prefix == MetaspacePrefix::first && here == Place::beginning;
      if (wanted && !old.starts_with(' ') && !old.starts_with(step.metaspace)) result += step.metaspace;
      for (const char c : old) c == ' ' ? result += step.metaspace : result += c;
    }
    piece = {begin, result.size()};
  }
  scratch.rewritten.swap(result);
  return scratch.rewritten;
}

// Encodes text without added tokens.
void Tokenizer::State::encode_plain(std::string_view text, Place place, Scratch& scratch,
                                    std::vector<int32_t>& ids) const {
  auto& pieces = scratch.pieces;
  pieces.assign(1, {0, text.size()});
  for (const Step& step : steps) {
    if (step.kind != SplitStep::Kind::split) {
      text = rewrite(step, text, place, scratch);
      continue;
    }
    scratch.next_pieces.clear();
    for (const Span& piece : pieces) step.splitter->split(text, piece, scratch.matches, scratch.next_pieces);
    pieces.swap(scratch.next_pieces);
    // The first piece may have been removed.
    if (!pieces.empty() && pieces.front().begin > 0) place = Place::elsewhere;
  }
  for (const Span& piece : pieces) {
    size_t begin = piece.begin;
    if (cuts_at_metaspace) {
      bool after_metaspace = true;
      for (size_t at = begin; at < piece.end;) {
        const bool metaspace = text.substr(at, piece.end - at).starts_with(kMetaspace);
        if (metaspace && !after_metaspace) {
          encode_word(text.substr(begin, at - begin), scratch, ids);
          begin = at;
        }
        after_metaspace = metaspace;
        at += metaspace ? kMetaspace.size() : 1;
      }
    }
    encode_word(text.substr(begin, piece.end - begin), scratch, ids);
  }
}

void Tokenizer::State::encode_word(std::string_view word, Scratch& scratch, std::vector<int32_t>& ids) const {
  const bool cacheable = word.size() <= WordCache::kLongestWord;
  const uint64_t hash = cacheable ? WordCache::hash(word) : 0;
  if (cacheable && scratch.cache.append(word, hash, ids)) return;
  const size_t before = ids.size();
  const auto known =
      ignore_merges ? vocabulary.find(byte_level ? byte_symbols.symbols(word) : std::string(word)) : vocabulary.end();
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
  state_->encode(text, false, *scratch, ids);
  state_->scratches.give_back(std::move(scratch));
  return ids;
}

std::vector<int32_t> Tokenizer::encode_with_special(std::string_view text) const {
  std::vector<int32_t> ids = encode_at(TextPlace::start, text);
  ids.insert(ids.end(), state_->frame.after.begin(), state_->frame.after.end());
  return ids;
}

std::vector<int32_t> Tokenizer::encode_at(TextPlace place, std::string_view text) const {
  const bool inside = place == TextPlace::inside;
  std::vector<int32_t> ids;
  if (!inside) ids = state_->frame.before;
  auto scratch = state_->scratches.take();
  state_->encode(text, inside, *scratch, ids);
  state_->scratches.give_back(std::move(scratch));
  return ids;
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
  const auto skips = [&](int32_t id) {
    return id < 0 || id >= vocab_size() || !state_->present[static_cast<size_t>(id)] ||
           (skip_special && is_special(id));
  };
  std::string bytes, text;
  std::vector<std::string> tokens;
  const bool byte_level = state_->decoder.is_byte_level();
  for (const int32_t id : ids) {
    if (skips(id)) continue;
    const std::string& token = state_->tokens[static_cast<size_t>(id)];
    if (byte_level) {
      bytes += token;
    } else {
      tokens.push_back(token);
    }
  }
  if (!byte_level) return state_->decoder.decode(std::move(tokens));
  if (is_utf8(bytes)) return bytes;
  append_repaired_utf8(text, bytes);
  return text;
}

int32_t Tokenizer::vocab_size() const {
  return static_cast<int32_t>(state_->tokens.size());
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
