#include "tessera/base/dtype.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "tessera/base/narrow_floats.h"

namespace tessera {
namespace {

TEST(F16, RoundTripThroughF32KeepsEveryValue) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = f16_to_f32(static_cast<uint16_t>(bits));
    if (std::isnan(value))
      EXPECT_TRUE(std::isnan(f16_to_f32(f32_to_f16(value))));
    else
      EXPECT_EQ(f32_to_f16(value), bits);
  }
}

TEST(F16, RoundsToNearestTiesToEven) {
  EXPECT_EQ(f16_to_f32(f32_to_f16(1.0f + 0x1p-11f)), 1.0f);                // halfway, down to even
  EXPECT_EQ(f16_to_f32(f32_to_f16(1.0f + 3 * 0x1p-11f)), 1.0f + 0x1p-9f);  // halfway, up to even
  EXPECT_EQ(f16_to_f32(f32_to_f16(65519.0f)), 65504.0f);                   // the largest f16; 65520 becomes infinity
  EXPECT_TRUE(std::isinf(f16_to_f32(f32_to_f16(65520.0f))));
  EXPECT_EQ(f16_to_f32(f32_to_f16(0x1p-25f)), 0.0f);  // half of the smallest subnormal, down to even
  EXPECT_EQ(f16_to_f32(f32_to_f16(0x1.8p-25f)), 0x1p-24f);
}

// Compares each value with the value that IEEE 754 defines for its sign, exponent and mantissa.
TEST(F16, EveryValueMatchesItsFields) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const int exponent = static_cast<int>(bits >> 10 & 0x1f), mantissa = static_cast<int>(bits & 0x3ff);
    const float value = f16_to_f32(static_cast<uint16_t>(bits));
    ASSERT_EQ(std::signbit(value), bits >> 15 == 1) << bits;
    if (exponent == 31) {
      ASSERT_TRUE(mantissa ? std::isnan(value) : std::isinf(value)) << bits;
    } else {
      const int significand = exponent ? mantissa + 1024 : mantissa;
      ASSERT_EQ(std::abs(value), std::ldexp(static_cast<float>(significand), std::max(exponent, 1) - 25)) << bits;
    }
  }
}

// Compares the conversion of arrays with the conversion of single values. From D to f32, converts every 16-bit value.
// From f32 to D, converts floats with every value of the upper bits. D cannot hold the lowest `num_lost` bits of a
// float. For each value of the upper bits, the lowest bits get six values, which cover all cases of rounding.
template <DType D>
void expect_arrays_convert_as_values(uint32_t num_lost) {
  std::vector<uint16_t> halves;
  for (uint32_t bits = 0; bits < 0x10000; ++bits) halves.push_back(static_cast<uint16_t>(bits));
  std::vector<float> floats(halves.size());
  convert(halves.data(), D, floats.data(), DType::f32, halves.size());
  for (size_t i = 0; i < halves.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(floats[i]), std::bit_cast<uint32_t>(Element<D>::load(halves[i]))) << i;
  }
  floats.clear();
  const uint32_t middle = 1u << (num_lost - 1);
  for (uint32_t upper = 0; upper < 1u << (32 - num_lost); ++upper) {
    for (uint32_t lower : {0u, 1u, middle - 1, middle, middle + 1, 2 * middle - 1}) {
      floats.push_back(std::bit_cast<float>(upper << num_lost | lower));
    }
  }
  halves.resize(floats.size());
  convert(floats.data(), DType::f32, halves.data(), D, floats.size());
  for (size_t i = 0; i < halves.size(); ++i) ASSERT_EQ(halves[i], Element<D>::store(floats[i])) << i;
}

// If the processor has instructions that convert f16, the conversion of arrays uses these instructions. The conversion
// of single values uses portable code. Both must give the same results.
TEST(F16, ArraysConvertLikeSingleValues) {
  expect_arrays_convert_as_values<DType::f16>(13);
}

TEST(Bf16, RoundTripThroughF32KeepsEveryValue) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = bf16_to_f32(static_cast<uint16_t>(bits));
    if (std::isnan(value))
      EXPECT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(value))));
    else
      EXPECT_EQ(f32_to_bf16(value), bits);
  }
}

TEST(Bf16, RoundsToNearestTiesToEven) {
  EXPECT_EQ(bf16_to_f32(f32_to_bf16(1.0f + 0x1p-8f)), 1.0f);
  EXPECT_EQ(bf16_to_f32(f32_to_bf16(1.0f + 3 * 0x1p-8f)), 1.0f + 0x1p-6f);
  EXPECT_TRUE(std::isinf(bf16_to_f32(f32_to_bf16(std::numeric_limits<float>::max()))));
}

TEST(Bf16, ArraysConvertLikeSingleValues) {
  expect_arrays_convert_as_values<DType::bf16>(16);
}

// A rest is the part of a float that is lost when the float is rounded to 16 bits. A bf16 and its rest together restore
// the float. Tests floats with every value of the upper 16 bits, each with six values of the lower 16 bits, as single
// values and as arrays. One case is not exact: if a float is halfway between two bf16 values and is rounded to the
// smaller magnitude, the restored float is one f32 ulp smaller in magnitude than the original float.
TEST(Bf16Rest, RestoresTheFloat) {
  std::vector<float> floats;
  std::vector<uint32_t> expected;
  for (uint32_t upper = 0; upper < 0x10000; ++upper) {
    for (const uint32_t lower : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      floats.push_back(std::bit_cast<float>(upper << 16 | lower));
      const bool is_tie_to_even = lower == 0x8000 && upper % 2 == 0;
      expected.push_back(upper << 16 | (is_tie_to_even ? 0x7fffu : lower));
    }
  }
  floats.push_back(1.5f);  // with this value, the last SIMD vector is incomplete
  expected.push_back(std::bit_cast<uint32_t>(1.5f));
  const size_t count = floats.size();
  std::vector<uint16_t> halves(count);
  std::vector<int16_t> rests(count);
  std::vector<float> joined(count);
  convert(floats.data(), DType::f32, halves.data(), DType::bf16, count);
  convert(floats.data(), DType::f32, rests.data(), DType::bf16_rest, count);
  join(halves.data(), rests.data(), DType::bf16_rest, joined.data(), count);
  for (size_t i = 0; i < count; ++i) {
    if (std::isnan(floats[i])) {
      ASSERT_TRUE(std::isnan(joined[i])) << i;
      continue;
    }
    ASSERT_EQ(std::bit_cast<uint32_t>(joined[i]), expected[i]) << i;
    ASSERT_EQ(std::bit_cast<uint32_t>(f32_of_bf16(halves[i], rests[i])), expected[i]) << i;
    ASSERT_EQ(f32_to_bf16(joined[i]), halves[i]) << i;
    ASSERT_EQ(bf16_rest_of(joined[i]), rests[i]) << i;
  }
}

// Tests floats with every value of the upper 19 bits (sign, exponent, and 10 bits of the mantissa, as in an f16), each
// with seven values of the lower 13 bits, as single values and as arrays. join() computes each float from its f16 and
// its rest. If the f16 is finite, the result equals the original float, with two exceptions. Magnitudes below 2^-17 are
// rounded to multiples of 2^-40. Floats next to the midpoint of two subnormal f16s change by at most 2^-40. If the
// result is split again, its f16 and its rest are the same as before.
TEST(F16Rest, RestoresTheFloat) {
  std::vector<float> floats;
  for (uint32_t upper = 0; upper < 1u << 19; ++upper) {
    for (const uint32_t lower : {0u, 1u, 0x800u, 0xfffu, 0x1000u, 0x1001u, 0x1fffu}) {
      floats.push_back(std::bit_cast<float>(upper << 13 | lower));
    }
  }
  floats.push_back(1.5f);  // with this value, the last SIMD vector is incomplete
  const size_t count = floats.size();
  std::vector<uint16_t> halves(count);
  std::vector<int16_t> rests(count);
  std::vector<float> joined(count);
  convert(floats.data(), DType::f32, halves.data(), DType::f16, count);
  convert(floats.data(), DType::f32, rests.data(), DType::f16_rest, count);
  join(halves.data(), rests.data(), DType::f16_rest, joined.data(), count);
  std::vector<uint16_t> split_halves(count);
  std::vector<int16_t> split_rests(count);
  for (size_t i = 0; i + kNarrowFloats <= count; i += kNarrowFloats) {
    split_floats<DType::f16_rest>(&floats[i], &split_halves[i], &split_rests[i]);
  }
  split_halves.back() = halves.back(), split_rests.back() = rests.back();
  EXPECT_EQ(split_halves, halves);
  EXPECT_EQ(split_rests, rests);
  int64_t num_shortened = 0;
  for (size_t i = 0; i < count; ++i) {
    const float x = floats[i], magnitude = std::abs(x), upper = f16_to_f32(halves[i]);
    if (!std::isfinite(upper)) {
      ASSERT_EQ(std::isnan(joined[i]), std::isnan(x)) << i;
      ASSERT_EQ(std::abs(int{rests[i]}), 32767) << i;
      continue;
    }
    const float one = f32_of_f16(halves[i], rests[i]);
    ASSERT_EQ(std::bit_cast<uint32_t>(one), std::bit_cast<uint32_t>(joined[i])) << i;
    // Next to the midpoint of two subnormal f16s, the rest would reach ±2^15. It is limited to ±32767. With ±2^15, the
    // joined float would be the midpoint, which may round to the other f16.
    const bool near_halfway = magnitude < 0x1p-14f && std::abs(x - upper) >= 0x1p-25f - 0x1p-40f;
    if (magnitude >= 0x1p-17f && !near_halfway) {
      ASSERT_EQ(one, x) << i;
    } else {
      ASSERT_NEAR(one, x, near_halfway ? 0x1p-40 : 0x1p-41) << i;
      num_shortened += one != x;
    }
    ASSERT_EQ(f32_to_f16(one), halves[i]) << i;
    ASSERT_EQ(f16_rest_of(one), rests[i]) << i;
    ASSERT_EQ(f16_rest_of(x), rests[i]) << i;
  }
  EXPECT_GT(num_shortened, 0);
}

TEST(Convert, ConvertsBetweenAllFloatingPointTypes) {
  const double source[] = {0.0, -1.5, 3.0, 0.25};
  for (const DType middle : {DType::f64, DType::f32, DType::f16, DType::bf16}) {
    uint64_t buffer[4];
    double back[4];
    convert(source, DType::f64, buffer, middle, 4);
    convert(buffer, middle, back, DType::f64, 4);
    for (int i = 0; i < 4; ++i) EXPECT_EQ(back[i], source[i]) << name_of(middle);
  }
}

}  // namespace
}  // namespace tessera
