// Byte pair encoding of one word: the model inside a tokenizer.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// The printable code point that represents each byte in a byte-level vocabulary. For the bytes 21–7E, A1–AC and AE–FF
// (in hexadecimal), the number of the code point is the value of the byte. U+0100, U+0101, … represent the other 68
// bytes, in ascending order. Source: GPT-2, encoder.py, bytes_to_unicode.
std::array<char32_t, 256> byte_symbols();

// A hash table with 64-bit keys, 64-bit values and open addressing. The key ~0 is reserved.
class FlatMap {
 public:
  explicit FlatMap(size_t expected_entries = 0);
  void set(uint64_t key, uint64_t value);  // replaces an earlier value of the key
  const uint64_t* find(uint64_t key) const {
    for (size_t i = home(key);; i = (i + 1) & mask_) {
      if (entries_[i].key == key) return &entries_[i].value;
      if (entries_[i].key == kNoKey) return nullptr;
    }
  }

 private:
  static constexpr uint64_t kNoKey = ~0ull;
  struct Entry {
    uint64_t key = kNoKey, value = 0;
  };
  size_t home(uint64_t key) const { return static_cast<size_t>((key * 0x9E3779B97F4A7C15ull) >> shift_); }
  void rehash(size_t num_buckets);

  std::vector<Entry> entries_;  // size is a power of two; at most half full
  size_t mask_ = 0, size_ = 0;
  int shift_ = 0;
};

// Two token ids as one key.
inline uint64_t pack_ids(int32_t high, int32_t low) {
  return static_cast<uint64_t>(static_cast<uint32_t>(high)) << 32 | static_cast<uint32_t>(low);
}

struct BpeMerge {
  int32_t left, right, result;  // ids
};

// How to split a word into symbols, before any merge. If the vocabulary lacks a symbol, its id in an array is −1, and
// `characters` has no entry for it.
struct BpeAlphabet {
  BpeAlphabet() {
    bytes.fill(-1);
    fallback_bytes.fill(-1);
  }
  bool by_character = false;                // a symbol is a character; otherwise, it is a byte
  std::array<int32_t, 256> bytes;           // id of each byte's symbol
  FlatMap characters;                       // code point -> id
  bool byte_fallback = false;               // replaces a character without an id by its bytes, if fallback_bytes has
                                            // an id for each of them
  std::array<int32_t, 256> fallback_bytes;  // ids of the tokens "<0x00>" to "<0xFF>"
  int32_t unk_id = -1;                      // for symbols with neither an id nor fallback bytes; −1: drops them
  bool fuse_unk = false;                    // adjacent symbols without an id give one unk_id
};

class Bpe {
 public:
  // Working memory of encode(). Only one thread at a time may use it.
  struct Scratch {
    struct Symbol {
      int32_t id;  // −1 after a merge into its left neighbour
      int32_t previous, next;
    };
    std::vector<Symbol> symbols;
    std::vector<uint64_t> heap;
  };

  // The rank of a merge is its index in `merges`. If `merges` has a pair several times, the last of these merges
  // counts.
  Bpe(BpeAlphabet alphabet, std::span<const BpeMerge> merges);

  // Appends the ids of one word. The word has at most 2^31 − 1 bytes, and is valid UTF-8 if symbols are characters.
  // Each step merges two adjacent symbols: the pair whose merge has the lowest rank. If the word has this pair several
  // times, the step merges the leftmost one. The steps end when no adjacent pair has a merge.
  void encode(std::string_view word, Scratch& scratch, std::vector<int32_t>& ids) const;

 private:
  void push_bytes(std::string_view word, Scratch& scratch) const;
  void push_characters(std::string_view word, Scratch& scratch) const;
  void push_pair(Scratch& scratch, int32_t left) const;

  BpeAlphabet alphabet_;
  FlatMap merges_;  // left id, right id -> rank, result id
};

// A bounded cache of encoded words. Each time it is full, it is cleared, and its number of buckets doubles, up to
// kMostBuckets.
class WordCache {
 public:
  static constexpr size_t kLongestWord = 128;  // bytes; longer words rarely repeat

  WordCache() { reset(1u << 10); }
  static uint64_t hash(std::string_view word);
  // If the cache has the word, appends its ids and returns true. Otherwise returns false. `hash` is hash(word).
  bool append(std::string_view word, uint64_t hash, std::vector<int32_t>& ids) const;
  // Adds a word that is not in the cache. The word has at most kLongestWord bytes and at most kLongestWord ids.
  void insert(std::string_view word, uint64_t hash, std::span<const int32_t> ids);

 private:
  static constexpr size_t kMostBuckets = 1u << 16;
  struct Bucket {
    uint32_t tag = 0;     // upper half of the hash
    uint32_t record = 0;  // index of the record in records_; 0 for an empty bucket
  };
  void reset(size_t num_buckets);

  std::vector<Bucket> buckets_;  // size is a power of two; at most half full
  // Per word: the number of bytes << 16 | the number of ids, then the ids, then the bytes, padded to a multiple of 4.
  std::vector<uint32_t> records_;
  size_t size_ = 0;
};

}  // namespace tessera
