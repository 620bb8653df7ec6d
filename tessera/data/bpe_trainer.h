// Learns a byte-level BPE vocabulary from texts.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

struct BpeTrainerOptions {
  int32_t vocab_size = 32000;  // all tokens: special ones, 256 bytes, merges; fewer if no pair is left
  int64_t min_frequency = 2;   // a pair seen less often is not merged
  std::vector<std::string> special_tokens = {"<unk>", "<s>", "</s>", "<pad>"};  // ids 0, 1, ...
};

// The text of a tokenizer.json of BLOOM's shape: BLOOM's split pattern, ByteLevel, no normaliser. Special tokens come
// first, then the 256 byte symbols in the order of their code points, then one token per merge.
//
// At every step the most frequent pair of neighbouring tokens inside words is merged; of equally frequent pairs the
// one with the smaller left id, then the smaller right id. The result depends on the multiset of the words alone and
// equals that of tokenizers' BpeTrainer with the byte alphabet as initial_alphabet.
//
// UsageError if the options are impossible. Bytes that are not UTF-8 count as U+FFFD, as in Tokenizer::encode.
std::string train_bpe_tokenizer(std::span<const std::string_view> texts, const BpeTrainerOptions& options);

}  // namespace tessera
