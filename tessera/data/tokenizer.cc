#include "tessera/data/tokenizer.h"

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/base/read_file.h"
#include "tessera/data/tokenizer_state.h"

namespace tessera {

void Tokenizer::State::encode(std::string_view text, bool inside, TokenizerScratch& scratch,
                              std::vector<int32_t>& ids) const {
  if (text.size() > kLongestText) {
    throw InputError("", "a text of " + std::to_string(text.size()) + " bytes is too long",
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
      const PiecePlace place = !first ? PiecePlace::elsewhere : inside ? PiecePlace::continuing : PiecePlace::beginning;
      encode_plain(piece.substr(inner.begin, inner.end - inner.begin), place, scratch, ids);
    }
  }
}

// Applies `step`, which changes the texts of all pieces. Returns the new text of all pieces together, which is in
// scratch.rewritten. Sets scratch.pieces to the places of the pieces in the new text.
std::string_view Tokenizer::State::rewrite(const TokenizerStep& step, std::string_view text, PiecePlace place,
                                           TokenizerScratch& scratch) const {
  std::string& result = scratch.next_rewritten;
  result.clear();
  for (Span& piece : scratch.pieces) {
    const std::string_view old = text.substr(piece.begin, piece.end - piece.begin);
    const PiecePlace here = &piece == &scratch.pieces.front() ? place : PiecePlace::elsewhere;
    const size_t begin = result.size();
    if (step.kind == SplitStep::Kind::prefix_space) {
      if (here != PiecePlace::continuing && !old.starts_with(' ')) result += ' ';
      result += old;
    } else {
      const bool wanted = step.prefix == MetaspacePrefix::always
                              ? here != PiecePlace::continuing
                              : step.prefix == MetaspacePrefix::first && here == PiecePlace::beginning;
      if (wanted && !old.starts_with(' ') && !old.starts_with(step.metaspace)) result += step.metaspace;
      for (const char c : old) c == ' ' ? result += step.metaspace : result += c;
    }
    piece = {begin, result.size()};
  }
  scratch.rewritten.swap(result);
  return scratch.rewritten;
}

// Encodes text that contains no added tokens.
void Tokenizer::State::encode_plain(std::string_view text, PiecePlace place, TokenizerScratch& scratch,
                                    std::vector<int32_t>& ids) const {
  auto& pieces = scratch.pieces;
  pieces.assign(1, {0, text.size()});
  for (const TokenizerStep& step : steps) {
    if (step.kind != SplitStep::Kind::split) {
      text = rewrite(step, text, place, scratch);
      continue;
    }
    scratch.next_pieces.clear();
    for (const Span& piece : pieces) step.splitter->split(text, piece, scratch.matches, scratch.next_pieces);
    pieces.swap(scratch.next_pieces);
    // If the step has removed the beginning of the text, no piece is at the beginning.
    if (!pieces.empty() && pieces.front().begin > 0) place = PiecePlace::elsewhere;
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

void Tokenizer::State::encode_word(std::string_view word, TokenizerScratch& scratch, std::vector<int32_t>& ids) const {
  if (word.size() > kLongestWord) {  // possible, because replacements can make a text many times longer
    throw InputError("", "a word of " + std::to_string(word.size()) + " bytes (after normalization) is too long",
                     "Split the text into shorter texts");
  }
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
  std::string bytes, text;
  std::vector<std::string> tokens;
  const bool byte_level = state_->decoder.is_byte_level();
  for (const int32_t id : ids) {
    if (state_->omits(id, skip_special)) continue;
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

std::string Tokenizer::bytes_of(int32_t id) const {
  if (state_->omits(id, false)) return "";
  const std::string& token = state_->tokens[static_cast<size_t>(id)];
  return state_->decoder.is_byte_level() ? token : state_->decoder.bytes_of(token);
}

int32_t Tokenizer::vocab_size() const {
  return static_cast<int32_t>(state_->tokens.size());
}

int32_t Tokenizer::vocabulary_end() const {
  int32_t end = 0;
  for (const auto& [token, id] : state_->vocabulary) {
    if (id >= end && !state_->added.contains(token)) end = id + 1;
  }
  return end;
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

bool Tokenizer::is_ordinary(int32_t id) const {
  return !state_->omits(id, false) &&
         std::ranges::none_of(state_->added, [&](const auto& token) { return token.second == id; });
}

const std::string& Tokenizer::json_text() const {
  return state_->json_text;
}

}  // namespace tessera
