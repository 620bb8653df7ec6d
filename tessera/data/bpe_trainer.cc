#include "tessera/data/bpe_trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <queue>
#include <unordered_map>
#include <unordered_set>

#include "tessera/base/error.h"
#include "tessera/base/option_names.h"
#include "tessera/data/bpe.h"
#include "tessera/data/tokenizer_json.h"
#include "tessera/data/tokenizer_split.h"
#include "tessera/data/tokenizer_text.h"

namespace tessera {

namespace {

constexpr const char* kLabel = "tokenizer training";

struct Word {
  std::vector<int32_t> ids;
  int64_t count;
};

using Pair = uint64_t;  // left id, right id: pack_ids()

struct PairUse {
  int64_t count = 0;  // occurrences of the pair in the texts
  // Indices of all words that contain the pair, and of some words that no longer contain it. May have an index twice.
  std::vector<uint32_t> words;
};

struct Candidate {
  int64_t count;
  Pair pair;
  bool operator<(const Candidate& other) const {  // the heap's top is the largest
    return count != other.count ? count < other.count : pair > other.pair;
  }
};

// next() finds the most frequent pair. merge() merges it in all words, and updates the counts of the pairs that this
// creates or removes.
class Learner {
 public:
  explicit Learner(std::vector<Word> words) : words_(std::move(words)) {
    for (uint32_t w = 0; w < words_.size(); ++w) {
      const auto& ids = words_[w].ids;
      for (size_t i = 0; i + 1 < ids.size(); ++i) add(pack_ids(ids[i], ids[i + 1]), w);
    }
    for (const auto& [pair, use] : uses_) heap_.push({use.count, pair});
  }

  // Sets `pair` to the most frequent pair. Returns false if no pair occurs at least `min_frequency` times.
  bool next(int64_t min_frequency, Pair& pair) {
    while (!heap_.empty()) {
      const Candidate top = heap_.top();
      if (top.count < min_frequency) return false;
      heap_.pop();
      const auto use = uses_.find(top.pair);
      const int64_t count = use == uses_.end() ? 0 : use->second.count;
      if (count == top.count) {
        pair = top.pair;
        return true;
      }
      if (count > 0 && count < top.count) heap_.push({count, top.pair});  // merge() has pushed pairs whose count rose
    }
    return false;
  }

  void merge(Pair pair, int32_t result) {
    const std::vector<uint32_t> words = std::move(uses_[pair].words);
    risen_.clear();
    for (const uint32_t w : words) merge_in_word(w, pair, result);
    uses_.erase(pair);
    std::sort(risen_.begin(), risen_.end());
    risen_.erase(std::unique(risen_.begin(), risen_.end()), risen_.end());
    for (const Pair p : risen_) {
      if (const auto use = uses_.find(p); use != uses_.end() && use->second.count > 0)
        heap_.push({use->second.count, p});
    }
  }

 private:
  void add(Pair pair, uint32_t w) {
    PairUse& use = uses_[pair];
    use.count += words_[w].count;
    if (use.words.empty() || use.words.back() != w) use.words.push_back(w);
  }

  void merge_in_word(uint32_t w, Pair pair, int32_t result) {
    auto& ids = words_[w].ids;
    const int64_t count = words_[w].count;
    size_t kept = 0;
    for (size_t i = 0; i < ids.size();) {
      const bool match = i + 1 < ids.size() && pack_ids(ids[i], ids[i + 1]) == pair;
      if (!match) {
        ids[kept++] = ids[i++];
        continue;
      }
      // ids[kept − 1] is the token on the left. It is `result` if the previous match ends directly before this match.
      if (kept > 0) {
        uses_[pack_ids(ids[kept - 1], ids[i])].count -= count;
        risen_.push_back(pack_ids(ids[kept - 1], result));
        add(risen_.back(), w);
      }
      if (i + 2 < ids.size()) {
        uses_[pack_ids(ids[i + 1], ids[i + 2])].count -= count;
        risen_.push_back(pack_ids(result, ids[i + 2]));
        add(risen_.back(), w);
      }
      ids[kept++] = result;
      i += 2;
    }
    ids.resize(kept);
  }

  std::vector<Word> words_;
  std::unordered_map<Pair, PairUse> uses_;
  // For each pair, the heap has an entry with the current count or a larger count. It may also have outdated entries.
  std::priority_queue<Candidate> heap_;
  std::vector<Pair> risen_;  // pairs whose count rose in the current merge
};

// Returns the distinct words of the texts, in the order of their first occurrence. A word has one id for each of its
// bytes, and its count is the number of its occurrences.
std::vector<Word> count_words(std::span<const std::string_view> texts, const std::array<int32_t, 256>& byte_ids) {
  const Splitter splitter(make_matcher(kBloomPattern, kLabel), SplitBehavior::isolated, false);
  std::unordered_map<std::string, size_t> known;
  std::vector<Word> words;
  std::vector<Span> matches, pieces;
  for (const std::string_view text : texts) {
    std::string valid;
    append_repaired_utf8(valid, text);
    pieces.clear();
    splitter.split(valid, {0, valid.size()}, matches, pieces);
    for (const Span& piece : pieces) {
      const auto [entry, is_new] = known.try_emplace(valid.substr(piece.begin, piece.end - piece.begin), words.size());
      if (!is_new) {
        ++words[entry->second].count;
        continue;
      }
      Word word{{}, 1};
      for (const char c : entry->first) word.ids.push_back(byte_ids[static_cast<uint8_t>(c)]);
      words.push_back(std::move(word));
    }
  }
  return words;
}

std::string json_string(const std::string& text) {
  return nlohmann::json(text).dump();
}

std::string write_json(const std::vector<std::string>& tokens, size_t num_special,
                       const std::vector<std::pair<int32_t, int32_t>>& merges) {
  std::string out = "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n  \"added_tokens\": [";
  for (size_t id = 0; id < num_special; ++id) {
    out += fmt::format(
        "{}\n    {{\n      \"id\": {},\n      \"content\": {},\n      \"single_word\": false,\n      \"lstrip\": "
        "false,\n"
        "      \"rstrip\": false,\n      \"normalized\": false,\n      \"special\": true\n    }}",
        id ? "," : "", id, json_string(tokens[id]));
  }
  const char* byte_level =
      "\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": true, \"use_regex\": false";
  out += fmt::format(
      "\n  ],\n  \"normalizer\": null,\n  \"pre_tokenizer\": {{\n    \"type\": \"Sequence\",\n    \"pretokenizers\": "
      "[\n"
      "      {{\"type\": \"Split\", \"pattern\": {{\"Regex\": {}}}, \"behavior\": \"Isolated\", \"invert\": false}},\n"
      "      {{{}}}\n    ]\n  }},\n  \"post_processor\": null,\n  \"decoder\": {{{}}},\n",
      json_string(kBloomPattern), byte_level, byte_level);
  out +=
      "  \"model\": {\n    \"type\": \"BPE\",\n    \"dropout\": null,\n    \"unk_token\": null,\n"
      "    \"continuing_subword_prefix\": null,\n    \"end_of_word_suffix\": null,\n    \"fuse_unk\": false,\n"
      "    \"byte_fallback\": false,\n    \"vocab\": {";
  for (size_t id = 0; id < tokens.size(); ++id) {
    out += fmt::format("{}\n      {}: {}", id ? "," : "", json_string(tokens[id]), id);
  }
  out += "\n    },\n    \"merges\": [";
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const auto& [left, right] = merges[rank];
    const std::string text = tokens[static_cast<size_t>(left)] + ' ' + tokens[static_cast<size_t>(right)];
    out += fmt::format("{}\n      {}", rank ? "," : "", json_string(text));
  }
  return out + "\n    ]\n  }\n}\n";
}

void check(const BpeTrainerOptions& options) {
  const auto least = static_cast<int64_t>(options.special_tokens.size()) + 256;
  if (options.vocab_size < least) {
    throw UsageError(option_place("vocab_size"),
                     fmt::format("{} tokens cannot hold the {} special tokens and 256 bytes", options.vocab_size,
                                 options.special_tokens.size()),
                     fmt::format("Give at least {}", least));
  }
  if (options.min_frequency < 1) {
    throw UsageError("min_frequency", fmt::format("{} is not positive", options.min_frequency), "Give 1 or more");
  }
  std::unordered_set<std::string> seen;
  for (const auto& token : options.special_tokens) {
    if (token.empty()) throw UsageError("special_tokens", "a token is empty");
    if (!is_utf8(token)) throw UsageError("special_tokens", "the token " + quoted_token(token) + " is not UTF-8");
    if (!seen.insert(token).second) {
      throw UsageError("special_tokens", "the token " + quoted_token(token) + " occurs twice");
    }
  }
}

}  // namespace

std::string train_bpe_tokenizer(std::span<const std::string_view> texts, const BpeTrainerOptions& options) {
  check(options);
  std::vector<std::string> tokens = options.special_tokens;
  std::unordered_map<std::string, int32_t> id_of;
  const auto add_token = [&](const std::string& token) {
    const auto [entry, is_new] = id_of.try_emplace(token, static_cast<int32_t>(tokens.size()));
    if (is_new) tokens.push_back(token);
    return entry->second;
  };
  for (size_t id = 0; id < tokens.size(); ++id) id_of.emplace(tokens[id], static_cast<int32_t>(id));

  const auto symbols = byte_symbols();
  std::vector<size_t> bytes(symbols.size());
  for (size_t byte = 0; byte < bytes.size(); ++byte) bytes[byte] = byte;
  std::sort(bytes.begin(), bytes.end(), [&](size_t a, size_t b) { return symbols[a] < symbols[b]; });
  std::array<int32_t, 256> byte_ids{};
  for (const size_t byte : bytes) {
    std::string symbol;
    append_code_point(symbol, symbols[byte]);
    byte_ids[byte] = add_token(symbol);
  }

  Learner learner(count_words(texts, byte_ids));
  std::vector<std::pair<int32_t, int32_t>> merges;
  Pair pair = 0;
  while (tokens.size() < static_cast<size_t>(options.vocab_size) && learner.next(options.min_frequency, pair)) {
    const auto left = static_cast<int32_t>(pair >> 32), right = static_cast<int32_t>(pair & 0xFFFFFFFF);
    const int32_t result = add_token(tokens[static_cast<size_t>(left)] + tokens[static_cast<size_t>(right)]);
    merges.emplace_back(left, right);
    learner.merge(pair, result);
  }
  return write_json(tokens, options.special_tokens.size(), merges);
}

}  // namespace tessera
