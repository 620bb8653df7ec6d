// Learns a byte-level BPE vocabulary from texts.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

struct BpeTrainerOptions {
  int64_t vocab_size = 32000;  // at most this many special tokens, byte symbols (256) and merged tokens together
  int64_t min_frequency = 2;   // pairs that occur less often are not merged
  std::vector<std::string> special_tokens = {"<unk>", "<s>", "</s>", "<pad>"};  // ids 0, 1, ...
};

// Returns the text of a tokenizer.json like BLOOM's, with BLOOM's split pattern, ByteLevel and no normalizer. The first
// ids are the special tokens. The 256 byte symbols follow in code-point order, then the tokens that merges create.
//
// Words are the pieces that the split pattern makes. Each step merges the most frequent pair of adjacent tokens within
// words. Among equally frequent pairs, it takes the pair with the smallest left id. If several pairs have this left id,
// it takes the smallest right id. Training ends at vocab_size, or when no pair occurs at least min_frequency times. The
// result depends only on the options, the words and the counts of the words. The BpeTrainer of Hugging Face's
// `tokenizers` gives the same result if its initial_alphabet is the byte alphabet.
//
// Throws UsageError for invalid options. Bytes that are not UTF-8 count as U+FFFD, as in Tokenizer::encode.
std::string train_bpe_tokenizer(std::span<const std::string_view> texts, const BpeTrainerOptions& options);

}  // namespace tessera
