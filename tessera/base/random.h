// Counter-based random numbers. A value depends only on (seed, stream, counter), so every rank, thread and
// recomputation draws the same numbers. Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC11,
// Philox4x32 with 10 rounds.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <utility>

namespace tessera {

// Returns the four random 32-bit words that belong to a 128-bit counter and a 64-bit key.
inline std::array<uint32_t, 4> philox(uint64_t key, uint64_t counter_low, uint64_t counter_high) {
  std::array<uint32_t, 4> c{static_cast<uint32_t>(counter_low), static_cast<uint32_t>(counter_low >> 32),
                            static_cast<uint32_t>(counter_high), static_cast<uint32_t>(counter_high >> 32)};
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = 0xD2511F53ull * c[0], p1 = 0xCD9E8D57ull * c[2];
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k0, static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k1, static_cast<uint32_t>(p0)};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c;
}

// Converts the upper 24 bits of a word to a float in [0, 1), a multiple of 2^-24.
inline float uniform_float(uint32_t word) {
  return static_cast<float>(word >> 8) * 0x1p-24f;
}

// A sequence of random numbers. For each seed, every number `stream` selects a different sequence.
class RandomStream {
 public:
  RandomStream(uint64_t seed, uint64_t stream) : seed_(seed), stream_(stream) {}
  uint32_t next_u32() {
    if (used_ == 4) {
      words_ = philox(seed_, counter_++, stream_);
      used_ = 0;
    }
    return words_[used_++];
  }
  uint64_t next_u64() {
    const uint64_t high = next_u32();
    return high << 32 | next_u32();
  }
  double next_uniform() { return static_cast<double>(next_u64() >> 11) * 0x1p-53; }  // [0, 1)
  uint64_t next_below(uint64_t n);  // uniform in [0, n), n > 0, no bias

 private:
  uint64_t seed_, stream_, counter_ = 0;
  std::array<uint32_t, 4> words_{};
  size_t used_ = 4;
};

// Fisher–Yates shuffle. The same (seed, stream) gives the same order.
template <typename T>
void shuffle(std::span<T> items, uint64_t seed, uint64_t stream) {
  RandomStream random(seed, stream);
  for (size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[random.next_below(i)]);
}

}  // namespace tessera
