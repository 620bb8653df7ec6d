#include "tessera/data/numpy_permutation.h"

#include <array>
#include <bit>
#include <numeric>
#include <utility>

#include "tessera/base/error.h"

namespace tessera {

namespace {

__extension__ using Wide = unsigned __int128;

// NumPy's SeedSequence: spreads a seed over the words of a generator's state.
class SeedSequence {
 public:
  explicit SeedSequence(uint64_t seed) {
    const std::array<uint32_t, 4> entropy{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32), 0, 0};
    uint32_t constant = 0x43b0d7e5;
    const auto hash = [&](uint32_t value) {
      value ^= constant;
      constant *= 0x931e8875;
      value *= constant;
      return value ^ value >> 16;
    };
    for (size_t i = 0; i < pool_.size(); ++i) pool_[i] = hash(entropy[i]);
    for (size_t from = 0; from < pool_.size(); ++from) {
      for (size_t to = 0; to < pool_.size(); ++to) {
        if (from == to) continue;
        const uint32_t mixed = 0xca01f9dd * pool_[to] - 0x4973f715 * hash(pool_[from]);
        pool_[to] = mixed ^ mixed >> 16;
      }
    }
  }

  std::array<uint64_t, 4> words() const {
    std::array<uint32_t, 8> halves{};
    uint32_t constant = 0x8b51f9dd;
    for (size_t i = 0; i < halves.size(); ++i) {
      uint32_t value = pool_[i % pool_.size()] ^ constant;
      constant *= 0x58f38ded;
      value *= constant;
      halves[i] = value ^ value >> 16;
    }
    std::array<uint64_t, 4> words{};
    for (size_t i = 0; i < words.size(); ++i) words[i] = halves[2 * i] | uint64_t{halves[2 * i + 1]} << 32;
    return words;
  }

 private:
  std::array<uint32_t, 4> pool_{};
};

// PCG64 (XSL-RR), seeded as in NumPy. As in NumPy, each 64-bit value gives two 32-bit values, the low half first.
class Pcg64 {
 public:
  explicit Pcg64(uint64_t seed) {
    const auto words = SeedSequence(seed).words();
    const auto wide = [](uint64_t high, uint64_t low) { return static_cast<Wide>(high) << 64 | low; };
    increment_ = wide(words[2], words[3]) << 1 | 1;
    step();
    state_ += wide(words[0], words[1]);
    step();
  }

  uint32_t next_u32() {
    if (has_half_) {
      has_half_ = false;
      return half_;
    }
    step();
    const auto high = static_cast<uint64_t>(state_ >> 64), low = static_cast<uint64_t>(state_);
    const uint64_t value = std::rotr(high ^ low, static_cast<int>(high >> 58));
    has_half_ = true;
    half_ = static_cast<uint32_t>(value >> 32);
    return static_cast<uint32_t>(value);
  }

  // Draws uniformly from [0, last], for last > 0. If `last` has n bits, a drawn number is the lowest n bits of a 32-bit
  // value. Draws again while this number is greater than `last`.
  uint32_t next_up_to(uint32_t last) {
    const uint32_t mask = UINT32_MAX >> std::countl_zero(last);
    while (true) {
      const uint32_t value = next_u32() & mask;
      if (value <= last) return value;
    }
  }

 private:
  void step() {
    constexpr Wide kMultiplier = static_cast<Wide>(0x2360ed051fc65da4) << 64 | 0x4385df649fccf645;
    state_ = state_ * kMultiplier + increment_;
  }

  Wide state_ = 0, increment_ = 0;
  bool has_half_ = false;
  uint32_t half_ = 0;
};

}  // namespace

std::vector<int64_t> numpy_permutation(int64_t size, uint64_t seed) {
  TESSERA_ASSERT(size >= 0 && size <= UINT32_MAX);
  std::vector<int64_t> order(static_cast<size_t>(size));
  std::iota(order.begin(), order.end(), 0);
  Pcg64 random(seed);
  for (size_t i = order.size(); i > 1; --i) {
    std::swap(order[i - 1], order[random.next_up_to(static_cast<uint32_t>(i - 1))]);
  }
  return order;
}

}  // namespace tessera
