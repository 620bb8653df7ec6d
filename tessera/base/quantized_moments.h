// AdamW's moments in 8 bits (Dettmers et al. 2022). 256 consecutive values are a block. A block stores the largest
// magnitude of its values in f32, and a code of 8 bits for each value: value = map[code] · largest. A block is one
// element of DType::q8_signed (first moments) or DType::q8_unsigned (second moments, which are never negative).
//
// The maps are the dynamic maps of bitsandbytes (create_dynamic_map()). A map divides each of the seven decades below
// 1, from 10^(d−7) to 10^(d−6) for decade d = 0 … 6, into cells of equal size: 2^d cells in the signed map, and 2^(d+1)
// cells in the unsigned map. The middle of each cell is a number of the map. The signed map also has the negatives of
// these numbers. Both maps have 0 and 1 too. Codes are in ascending order of the numbers.
//
// CPUs and GPUs compute the same bits. A block's largest magnitude does not depend on the order of comparisons, and the
// header decides which product and sum have one rounding together.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "tessera/base/dtype.h"
#include "tessera/base/math.h"

namespace tessera {

struct QuantizedBlock {
  uint8_t codes[kQuantizedValues];
  float largest;
};
static_assert(sizeof(QuantizedBlock) == size_of(DType::q8_signed));
static_assert(sizeof(QuantizedBlock) == size_of(DType::q8_unsigned));

// The numbers ≥ 0 of a map have levels. The zero has level kZero, and the levels 2^n … 2^(n+1) − 1 are one decade with
// 2^n cells. The 1 has level kTop.
template <bool kSigned>
struct MomentMap {
  static constexpr int kDecades = 7, kFirstBits = kSigned ? 0 : 1;  // the first decade has 2^kFirstBits cells
  static constexpr int32_t kZero = kSigned ? 0 : 1, kTop = kSigned ? 128 : 256;

  // The number of a level, rounded once to double.
  static constexpr double number_of_level(int32_t level) {
    if (level == kZero) return 0;
    if (level == kTop) return 1;
    const int bits = static_cast<int>(std::bit_width(static_cast<uint32_t>(level))) - 1;
    const int64_t cells = int64_t{1} << bits, cell = level - cells;
    // (0.1 + 0.9 · (cell + ½) / cells) · 10^(decade − 6), as a quotient of integers
    return static_cast<double>(2 * cells + 18 * cell + 9) /
           static_cast<double>(2 * cells * power_of_10(kDecades + kFirstBits - bits));
  }
  static constexpr int32_t level_of_code(uint8_t code) {
    return !kSigned ? int32_t{code} + 1 : code < 127 ? 127 - int32_t{code} : int32_t{code} - 127;
  }
  static constexpr float number(uint8_t code) {
    const auto magnitude = static_cast<float>(number_of_level(level_of_code(code)));
    return kSigned && code < 127 ? -magnitude : magnitude;
  }
  // number() of all codes.
  static constexpr std::array<float, 256> numbers() {
    std::array<float, 256> all{};
    for (int code = 0; code < 256; ++code) all[static_cast<size_t>(code)] = number(static_cast<uint8_t>(code));
    return all;
  }

  // The factor of the values of a block before they are compared with the map. Above 2^126, the inverse would be
  // subnormal, which CPUs and GPUs may treat as 0.
  static constexpr float inverse_of(float largest) {
    return largest > 0 ? 1.0f / (largest < 0x1p126f ? largest : 0x1p126f) : 0.0f;
  }

  // The code of the number that is nearest to value · inverse, where `inverse` is inverse_of() of the block's largest
  // magnitude. If two numbers are equally near, up to rounding errors, it is the code of either. A second moment above
  // 0 never gets the code of 0, even if 0 is nearer than the smallest number above it: AdamW divides by the root of the
  // second moment plus epsilon. With a second moment of 0, it would divide the first moment by epsilon alone. The
  // function has no branches, so compilers can vectorize loops that call it. If `value` is NaN or infinite, it returns
  // some code.
  static constexpr uint8_t code(float value, float inverse) {
    const float magnitude = (value < 0 ? -value : value) * inverse;
    return code_of_level(value, level_in(magnitude, part_of(magnitude, std::make_integer_sequence<int, kParts>{})));
  }

  // code() in two steps, for another way to find the part of a magnitude. Part 0 of the magnitudes is 0. Part i + 1 is
  // decade i, and the last part is the number 1. A part begins where its first number is as near as the last number of
  // the previous part. Within a part, level = ⌊magnitude · scale + offset⌋, but at most `last`.
  struct Part {
    float begin, scale, offset, last;
  };
  static constexpr int kParts = kDecades + 2;
  static constexpr Part part(int number) {
    if (number == 0) return {0, 0, static_cast<float>(kZero), static_cast<float>(kZero)};
    const auto first = int32_t{1} << (kFirstBits + number - 1);
    const auto begin = static_cast<float>((number_of_level(first - 1) + number_of_level(first)) / 2);
    if (number == kParts - 1) return {begin, 0, static_cast<float>(kTop), static_cast<float>(kTop)};
    // The decade has `first` cells, and (magnitude · 10^(6−i) − 0.1) / 0.9 · first is the number of the cell.
    return {begin, static_cast<float>(static_cast<double>(first * power_of_10(kDecades + 1 - number)) / 9),
            static_cast<float>(8 * first / 9.0), static_cast<float>(2 * first - 1)};
  }
  static constexpr int32_t level_in(float magnitude, const Part& part) {
    const float level = multiply_add(magnitude, part.scale, part.offset);
    return static_cast<int32_t>(level < part.last ? level : part.last);
  }
  static constexpr uint8_t code_of_level(float value, int32_t level) {
    if constexpr (kSigned) {
      const int32_t below = level < 127 ? level : 127;  // the map has no −1
      return static_cast<uint8_t>(value < 0 ? 127 - below : 127 + level);
    } else {
      const int32_t above = level > kZero + 1 ? level : kZero + 1;
      return static_cast<uint8_t>((value > 0 ? above : level) - 1);
    }
  }

 private:
  static constexpr int64_t power_of_10(int n) { return n == 0 ? 1 : 10 * power_of_10(n - 1); }
  // The part with the last begin that is not above the magnitude.
  template <int... kNumbers>
  static constexpr Part part_of(float magnitude, std::integer_sequence<int, kNumbers...>) {
    Part in = part(0);
    (choose<kNumbers>(magnitude, in), ...);
    return in;
  }
  template <int kNumber>
  static constexpr void choose(float magnitude, Part& in) {
    constexpr Part kIts = part(kNumber);
    const bool reached = magnitude >= kIts.begin;
    in.scale = reached ? kIts.scale : in.scale;
    in.offset = reached ? kIts.offset : in.offset;
    in.last = reached ? kIts.last : in.last;
  }
};

// Quantizes `count` values to blocks of the given type. If `count` is no multiple of 256, zeros complete the last
// block. The values have any alignment of floats; blocks are aligned to 4 bytes.
void quantize(const float* values, int64_t count, DType dtype, std::byte* blocks);
// The reverse: writes the values [first, first + count) of the blocks.
void dequantize(const std::byte* blocks, DType dtype, int64_t first, int64_t count, float* values);

}  // namespace tessera
