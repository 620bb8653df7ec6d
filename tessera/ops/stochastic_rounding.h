// Stochastic rounding of f32 to bf16. AdamW stores bf16 states this way. Let x be between the neighbouring bf16 values
// a < b. Then x becomes b with the probability (x − a) / (b − a), and a otherwise. The expected result is x itself.
// Updates that are much smaller than b − a are therefore not lost. Rounding to nearest would lose them.
//
// The random bits are a pure function of the seed, the number of the update and the number of the element in the model.
// They are therefore the same on every device, for every sharding, and if the arrays are updated in pieces. A group of
// 64 elements uses 16 consecutive Philox counters. Each counter gives four words. The first 16 elements use word 0 of
// the 16 counters, the next 16 elements use word 1, and so on. Vector code therefore needs no shuffles.
#pragma once

#include <bit>
#include <cstdint>

namespace tessera {

inline constexpr int64_t kRoundingGroup = 64;  // elements of a group; a group begins at a multiple of 64

// The lower half of an element's 128-bit counter, and the number of the element's word among the counter's four words.
constexpr uint64_t rounding_counter(int64_t elem) {
  return static_cast<uint64_t>(elem / 64 * 16 + elem % 16);
}
constexpr uint32_t rounding_word_index(int64_t elem) {
  return static_cast<uint32_t>(elem % 64 / 16);
}
// The upper half of the counter. The highest bit separates these counters from the counters of dropout and of
// initial parameters.
constexpr uint64_t rounding_counter_high(int64_t update) {
  return uint64_t{1} << 63 | static_cast<uint64_t>(update);
}

// An element has three values (AdamW's moments m and v, and the parameter p) and one word of 32 random bits. Each value
// uses 16 bits of the word, which begin at the bit given here. The 16 bits of one value are uniform. The bits of m and
// of p are disjoint. v shares 8 bits with m and 8 bits with p. The random number of v therefore has a correlation of
// 1/256 with the random number of m, and also with the random number of p.
enum class Rounded : uint32_t { m = 0, v = 8, p = 16 };

// Rounds `value` to bf16 with the random bits of `word`, and returns the bits of the bf16. Finite values stay finite:
// the magnitude of the result is at most the largest finite bf16. Infinity stays infinite, and NaN stays NaN. The
// function has no branches, so compilers can vectorize loops that call it.
constexpr uint16_t stochastic_bf16(float value, uint32_t word, Rounded which) {
  const uint32_t bits = std::bit_cast<uint32_t>(value), magnitude = bits & 0x7fffffffu;
  const uint32_t raised = (magnitude + ((word >> static_cast<uint32_t>(which)) & 0xffffu)) >> 16;
  const uint32_t finite = raised < 0x7f7fu ? raised : 0x7f7fu;
  const uint32_t special = (magnitude >> 16) | (magnitude > 0x7f800000u ? 0x40u : 0u);
  return static_cast<uint16_t>(((bits >> 16) & 0x8000u) | (magnitude < 0x7f800000u ? finite : special));
}

}  // namespace tessera
