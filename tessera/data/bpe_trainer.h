// Learns a byte-level BPE vocabulary from texts.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

struct BpeTrainerOptions {
  int64_t vocab_size = 32000;  // special tokens, 256 bytes and merges; the result has fewer if no pair is left
  int64_t min_frequency = 2;   // rarer pairs are not merged
  std::vector<std::string> special_tokens = {"<unk>", "<s>", "</s>", "<pad>"};  // ids 0, 1, ...
};

// Returns the text of a tokenizer.json like BLOOM's: BLOOM's split pattern, ByteLevel, no normalizer. Special tokens
// come first, then the 256 byte symbols in code-point order, then one token per merge.
//
// Each step merges the most frequent pair of adjacent tokens within words. Among equally frequent pairs, it takes the
// smaller left id, then the smaller right id. The result depends only on the multiset of words. The BpeTrainer of
// tokenizers gives the same result with the byte alphabet as initial_alphabet.
//
// UsageError: invalid options. Bytes that are not UTF-8 count as U+FFFD, as in Tokenizer::encode.
std::string train_bpe_tokenizer(std::span<const std::string_view> texts, const BpeTrainerOptions& options);

}  // namespace tessera
