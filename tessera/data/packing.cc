#include "tessera/data/packing.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/math.h"

namespace tessera {

namespace {

// A set of numbers in [0, size). All calls take a constant time: at most one word per level is read or written. A level
// has one bit for each word of the level below it, which says that the word is not 0.
class NumberSet {
 public:
  explicit NumberSet(int64_t size) {
    do {
      size = ceil_divide(size, kBits);
      levels_.emplace_back(static_cast<size_t>(size), 0);
    } while (size > 1);
  }

  void insert(int64_t number) {
    for (auto& level : levels_) {
      word(level, number) |= bit(number);
      number /= kBits;
    }
  }
  void erase(int64_t number) {
    for (auto& level : levels_) {
      if ((word(level, number) &= ~bit(number)) != 0) return;
      number /= kBits;
    }
  }
  // The smallest element that is at least `number`, or -1.
  int64_t at_least(int64_t number) const {
    for (size_t k = 0; k < levels_.size() && number < std::ssize(levels_[k]) * kBits; ++k) {
      const uint64_t rest = levels_[k][static_cast<size_t>(number / kBits)] & ~(bit(number) - 1);
      if (rest == 0) {
        number = number / kBits + 1;
        continue;
      }
      number = number / kBits * kBits + std::countr_zero(rest);
      while (k-- > 0) number = number * kBits + std::countr_zero(levels_[k][static_cast<size_t>(number)]);
      return number;
    }
    return -1;
  }

 private:
  static constexpr int64_t kBits = 64;
  static uint64_t bit(int64_t number) { return uint64_t{1} << (number % kBits); }
  static uint64_t& word(std::vector<uint64_t>& level, int64_t number) {
    return level[static_cast<size_t>(number / kBits)];
  }

  std::vector<std::vector<uint64_t>> levels_;
};

// The micro-batches that take more samples, by their free tokens. If several have the same number of free tokens, the
// one that was added last is taken first.
class OpenBatches {
 public:
  explicit OpenBatches(int64_t most_tokens)
      : rooms_(most_tokens + 1), heads_(static_cast<size_t>(most_tokens + 1), -1) {}

  // The fewest free tokens of a micro-batch that has room for `tokens`, or -1.
  int64_t least_room(int64_t tokens) const { return rooms_.at_least(tokens); }
  void add(int64_t batch, int64_t room) {
    int64_t& head = heads_[static_cast<size_t>(room)];
    if (head < 0) rooms_.insert(room);
    next_.resize(std::max(next_.size(), static_cast<size_t>(batch + 1)));
    next_[static_cast<size_t>(batch)] = std::exchange(head, batch);
  }
  // Removes and returns a micro-batch with exactly this room. One must exist.
  int64_t take(int64_t room) {
    int64_t& head = heads_[static_cast<size_t>(room)];
    const int64_t batch = std::exchange(head, next_[static_cast<size_t>(head)]);
    if (head < 0) rooms_.erase(room);
    return batch;
  }

 private:
  NumberSet rooms_;
  std::vector<int64_t> heads_;  // [most_tokens + 1] the first micro-batch with this room; -1: none
  std::vector<int64_t> next_;   // of each micro-batch, the next one with the same room; -1: none
};

}  // namespace

Packing best_fit(std::span<const int64_t> order, std::span<const int64_t> lengths, const PackingLimits& limits) {
  TESSERA_ASSERT(limits.tokens > 0 && limits.samples > 0);
  OpenBatches open(limits.tokens);
  std::vector<int64_t> counts;  // of each micro-batch, its samples
  // First the length of each element, then its micro-batch. A loop of its own reads the lengths, because the processor
  // overlaps the cache misses of independent reads.
  std::vector<int64_t> batch_of(order.size());
  for (size_t i = 0; i < order.size(); ++i) batch_of[i] = lengths[static_cast<size_t>(order[i])];
  for (size_t i = 0; i < order.size(); ++i) {
    const int64_t length = batch_of[i];
    TESSERA_ASSERT(length <= limits.tokens);
    int64_t room = open.least_room(length);
    int64_t batch = std::ssize(counts);
    if (room >= 0) {
      batch = open.take(room);
    } else {
      if (const int64_t other = limits.one_open ? open.least_room(0) : -1; other >= 0) open.take(other);
      room = limits.tokens;
      counts.push_back(0);
    }
    batch_of[i] = batch;
    if (++counts[static_cast<size_t>(batch)] < limits.samples) open.add(batch, room - length);
  }

  Packing packing{std::vector<int64_t>(order.size()), {0}};
  packing.starts.reserve(counts.size() + 1);
  for (const int64_t count : counts) packing.starts.push_back(packing.starts.back() + count);
  std::vector<int64_t>& next = counts;  // of each micro-batch, the place of its next sample
  std::copy(packing.starts.begin(), packing.starts.end() - 1, next.begin());
  for (size_t i = 0; i < order.size(); ++i) {
    packing.order[static_cast<size_t>(next[static_cast<size_t>(batch_of[i])]++)] = order[i];
  }
  return packing;
}

}  // namespace tessera
