#include "tessera/data/bpe.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/data/tokenizer_text.h"

namespace tessera {

std::array<char32_t, 256> byte_symbols() {
  std::array<char32_t, 256> symbols{};
  char32_t next = 0x100;
  for (char32_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    symbols[byte] = printable ? byte : next++;
  }
  return symbols;
}

FlatMap::FlatMap(size_t expected_entries) {
  rehash(std::bit_ceil(std::max<size_t>(16, 2 * expected_entries)));
}

void FlatMap::rehash(size_t num_buckets) {
  std::vector<Entry> old(num_buckets);
  old.swap(entries_);
  mask_ = num_buckets - 1;
  shift_ = 64 - std::countr_zero(num_buckets);
  size_ = 0;
  for (const Entry& entry : old) {
    if (entry.key != kNoKey) set(entry.key, entry.value);
  }
}

void FlatMap::set(uint64_t key, uint64_t value) {
  TESSERA_ASSERT(key != kNoKey);
  if (2 * (size_ + 1) > entries_.size()) rehash(2 * entries_.size());
  size_t i = home(key);
  while (entries_[i].key != key && entries_[i].key != kNoKey) i = (i + 1) & mask_;
  if (entries_[i].key == kNoKey) ++size_;
  entries_[i] = {key, value};
}

Bpe::Bpe(BpeAlphabet alphabet, std::span<const BpeMerge> merges)
    : alphabet_(std::move(alphabet)), merges_(merges.size()) {
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const BpeMerge& merge = merges[rank];
    merges_.set(pack_ids(merge.left, merge.right), pack_ids(static_cast<int32_t>(rank), merge.result));
  }
}

// A heap entry has the merge's rank in its upper half, and the index of the left symbol in its lower half. The smallest
// entry is therefore the next merge: the lowest rank, and the leftmost pair with this rank.
void Bpe::push_pair(Scratch& scratch, int32_t left) const {
  const auto& symbol = scratch.symbols[static_cast<size_t>(left)];
  const uint64_t* merge = merges_.find(pack_ids(symbol.id, scratch.symbols[static_cast<size_t>(symbol.next)].id));
  if (!merge) return;
  scratch.heap.push_back((*merge & 0xFFFFFFFF00000000ull) | static_cast<uint32_t>(left));
}

namespace {

void push_symbol(std::vector<Bpe::Scratch::Symbol>& symbols, int32_t id) {
  const auto at = static_cast<int32_t>(symbols.size());
  symbols.push_back({id, at - 1, at + 1});
}

}  // namespace

void Bpe::push_bytes(std::string_view word, Scratch& scratch) const {
  bool after_unk = false;
  for (const char c : word) {
    int32_t id = alphabet_.bytes[static_cast<uint8_t>(c)];
    const bool unknown = id < 0;
    if (unknown && (alphabet_.unk_id < 0 || (after_unk && alphabet_.fuse_unk))) continue;
    if (unknown) id = alphabet_.unk_id;
    after_unk = unknown;
    push_symbol(scratch.symbols, id);
  }
}

// An unknown character has neither an id nor fallback bytes. Its unk_id is appended late: when a character with an id
// follows, or at the end of the word. Without fuse_unk, it is also appended when another unknown character follows.
// A following character with fallback bytes has no such effect: its bytes are appended before the unk_id,
// although the character comes after the unknown character in the word. BPE::merge_word of Hugging Face's tokenizers
// does the same.
void Bpe::push_characters(std::string_view word, Scratch& scratch) const {
  bool unk_waits = false;
  const auto flush = [&] {
    if (unk_waits) push_symbol(scratch.symbols, alphabet_.unk_id);
    unk_waits = false;
  };
  const auto id_of_byte = [&](char byte) { return alphabet_.fallback_bytes[static_cast<uint8_t>(byte)]; };
  for (size_t at = 0; at < word.size();) {
    const CodePoint c = code_point_at(word, at);
    const std::string_view bytes = word.substr(at, c.num_bytes);
    at += c.num_bytes;
    if (const uint64_t* id = alphabet_.characters.find(c.code)) {
      flush();
      push_symbol(scratch.symbols, static_cast<int32_t>(*id));
    } else if (alphabet_.byte_fallback &&
               std::all_of(bytes.begin(), bytes.end(), [&](char byte) { return id_of_byte(byte) >= 0; })) {
      for (const char byte : bytes) push_symbol(scratch.symbols, id_of_byte(byte));
    } else if (alphabet_.unk_id >= 0) {
      if (!alphabet_.fuse_unk) flush();
      unk_waits = true;
    }
  }
  flush();
}

void Bpe::encode(std::string_view word, Scratch& scratch, std::vector<int32_t>& ids) const {
  TESSERA_ASSERT(word.size() < 0x80000000u);
  auto& symbols = scratch.symbols;
  auto& heap = scratch.heap;
  symbols.clear();
  heap.clear();
  alphabet_.by_character ? push_characters(word, scratch) : push_bytes(word, scratch);
  if (symbols.empty()) return;
  symbols.back().next = -1;
  for (size_t i = 0; i + 1 < symbols.size(); ++i) push_pair(scratch, static_cast<int32_t>(i));
  std::make_heap(heap.begin(), heap.end(), std::greater<>());

  const auto push = [&](int32_t left) {
    const size_t before = heap.size();
    push_pair(scratch, left);
    if (heap.size() != before) std::push_heap(heap.begin(), heap.end(), std::greater<>());
  };
  while (!heap.empty()) {
    const uint64_t top = heap.front();
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    heap.pop_back();
    const auto at = static_cast<int32_t>(static_cast<uint32_t>(top));
    auto& left = symbols[static_cast<size_t>(at)];
    if (left.id < 0 || left.next < 0) continue;
    auto& right = symbols[static_cast<size_t>(left.next)];
    const uint64_t* merge = merges_.find(pack_ids(left.id, right.id));
    if (!merge || (*merge ^ top) >> 32 != 0) continue;  // a symbol of the pair changed after the pair was pushed
    left.id = static_cast<int32_t>(static_cast<uint32_t>(*merge));
    right.id = -1;
    left.next = right.next;
    if (left.next >= 0) {
      symbols[static_cast<size_t>(left.next)].previous = at;
      push(at);
    }
    if (left.previous >= 0) push(left.previous);
  }
  for (int32_t at = 0; at >= 0; at = symbols[static_cast<size_t>(at)].next) {
    ids.push_back(symbols[static_cast<size_t>(at)].id);
  }
}

uint64_t WordCache::hash(std::string_view word) {
  const char* data = word.data();
  size_t left = word.size();
  uint64_t hash = left * 0x9E3779B97F4A7C15ull;
  while (left > 0) {
    uint64_t part = 0;
    const size_t count = std::min(left, sizeof part);
    std::memcpy(&part, data, count);
    hash = (hash ^ part) * 0xD6E8FEB86659FD93ull;
    hash ^= hash >> 32;
    data += count;
    left -= count;
  }
  return hash * 0x9E3779B97F4A7C15ull;
}

void WordCache::reset(size_t num_buckets) {
  buckets_.assign(num_buckets, {});
  records_.assign(1, 0);  // records begin at index 1, because index 0 stands for an empty bucket
  size_ = 0;
}

bool WordCache::append(std::string_view word, uint64_t hash, std::vector<int32_t>& ids) const {
  const size_t mask = buckets_.size() - 1;
  const auto tag = static_cast<uint32_t>(hash >> 32);
  for (size_t i = hash & mask; buckets_[i].record != 0; i = (i + 1) & mask) {
    if (buckets_[i].tag != tag) continue;
    const uint32_t* record = &records_[buckets_[i].record];
    const uint32_t num_bytes = *record >> 16, num_ids = *record & 0xFFFF;
    if (num_bytes != word.size() || std::memcmp(record + 1 + num_ids, word.data(), num_bytes) != 0) continue;
    for (uint32_t k = 1; k <= num_ids; ++k) ids.push_back(static_cast<int32_t>(record[k]));
    return true;
  }
  return false;
}

void WordCache::insert(std::string_view word, uint64_t hash, std::span<const int32_t> ids) {
  TESSERA_ASSERT(word.size() <= kLongestWord && ids.size() <= kLongestWord);
  if (2 * (size_ + 1) > buckets_.size()) reset(std::min(2 * buckets_.size(), kMostBuckets));
  const size_t mask = buckets_.size() - 1;
  size_t i = hash & mask;
  while (buckets_[i].record != 0) i = (i + 1) & mask;
  buckets_[i] = {static_cast<uint32_t>(hash >> 32), static_cast<uint32_t>(records_.size())};
  records_.push_back(static_cast<uint32_t>(word.size() << 16 | ids.size()));
  records_.insert(records_.end(), ids.begin(), ids.end());
  const size_t bytes_at = records_.size();
  records_.resize(bytes_at + (word.size() + 3) / 4);
  std::memcpy(&records_[bytes_at], word.data(), word.size());
  ++size_;
}

}  // namespace tessera
