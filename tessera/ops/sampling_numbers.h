// The arithmetic of drawing a token, the same on every device. Each logit of a row becomes two integers:
//
//   distance = (largest logit − logit) / temperature, as a fixed-point number with 26 fraction bits;
//   weight   = exp(−distance), as a fixed-point number with 42 fraction bits.
//
// exp(−distance) is called the token's share: its probability divided by the probability of the most likely token. A
// token with a share of less than 2^-43 has the weight 0. Tokens with equal distances count as equally likely. Weights
// are integers, so their sums are exact in any order. A sum of weights is called a mass.
#pragma once

#include <cstdint>

#include "tessera/base/random.h"
#include "tessera/ops/kernels.h"

namespace tessera {

inline constexpr double kDistanceUnit = 0x1p-26, kWeightUnit = 0x1p-42;
// Distances are less than 32. If a logit's distance would be 32 or more, or is NaN, the logit gets kNeverDrawn instead.
// Loops over the row skip such logits.
inline constexpr uint32_t kLargestDistance = 0x7FFFFFFFu, kNeverDrawn = 0x80000000u;
// The sum of this many weights fits into 63 bits.
inline constexpr int64_t kMaxSampledVocabulary = int64_t{1} << 20;

// `largest` is finite or +∞, and no logit is greater.
constexpr uint32_t sampling_distance(double logit, double largest, double temperature) {
  if (logit == largest) return 0;
  const double units = (largest - logit) / temperature * (1 / kDistanceUnit);
  return units < static_cast<double>(kNeverDrawn) ? static_cast<uint32_t>(units) : kNeverDrawn;
}

// `share` is exp(−d · kDistanceUnit), where d is the result of sampling_distance().
constexpr uint64_t sampling_weight(double share) {
  // lround is not constexpr.
  return static_cast<uint64_t>(share * (1 / kWeightUnit) + 0.5);  // NOLINT(bugprone-incorrect-roundings)
}

// top_p keeps a token if the mass of all more likely tokens is less than the result of this function. `total` is the
// mass of the tokens that top_k keeps.
constexpr uint64_t sampling_mass_of(double top_p, uint64_t total) {
  const double wanted = top_p * static_cast<double>(total);
  auto mass = static_cast<uint64_t>(wanted);
  if (static_cast<double>(mass) < wanted) ++mass;
  return mass < 1 ? 1 : mass > total ? total : mass;
}

// floor(draw / 2^64 · total): uniform below `total`, for a uniform `draw`.
constexpr uint64_t sampling_point(uint64_t draw, uint64_t total) {
  const uint64_t low = (draw & 0xFFFFFFFFu) * (total & 0xFFFFFFFFu), a = (draw >> 32) * (total & 0xFFFFFFFFu),
                 b = (draw & 0xFFFFFFFFu) * (total >> 32);
  const uint64_t middle = (low >> 32) + (a & 0xFFFFFFFFu) + (b & 0xFFFFFFFFu);
  return (draw >> 32) * (total >> 32) + (a >> 32) + (b >> 32) + (middle >> 32);
}

// top_k and top_p keep all tokens up to some distance. A search finds the 31 bits of this distance in three groups
// (digits), the highest bits first. For each digit, the search sorts tokens into buckets, one for each value of the
// digit. A bucket of the first digit covers a range of distances of width 1/64. This is narrow, so tokens spread over
// many buckets, and on a GPU few threads add to the same bucket at the same time.
struct SamplingDigit {
  int shift, bits;
};
inline constexpr int kSamplingDigits = 3, kMaxSamplingBuckets = 1 << 11;
constexpr SamplingDigit sampling_digit(int digit) {
  return digit == 0 ? SamplingDigit{20, 11} : digit == 1 ? SamplingDigit{10, 10} : SamplingDigit{0, 10};
}

// The random number for token `position` of text `text`. Position 0 is the text's first new token. The number depends
// only on the arguments.
inline uint64_t sampling_draw(uint64_t seed, int64_t text, int64_t position) {
  constexpr uint64_t kStream = uint64_t{0x73616D70} << 32;  // "samp": separates these draws from others with this seed
  const auto words = philox(seed, static_cast<uint64_t>(position), kStream ^ static_cast<uint64_t>(text));
  return static_cast<uint64_t>(words[0]) << 32 | words[1];
}

}  // namespace tessera
