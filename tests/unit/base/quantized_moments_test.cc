#include "tessera/base/quantized_moments.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

#include "tessera/base/random.h"
#include "tessera/base/read_file.h"
#include "tessera/base/record.h"

namespace tessera {
namespace {

// The numbers that bitsandbytes gives to the codes of a map (tools/make_dynamic_maps.py).
std::vector<double> published_map(bool is_signed) {
  const Record maps = Record::parse(read_file(TESSERA_TEST_DIR "/unit/base/dynamic_maps.json", {}));
  std::vector<double> numbers;
  for (const Record& number : maps.at(is_signed ? "signed" : "unsigned")) numbers.push_back(number.get<double>());
  return numbers;
}

template <bool kSigned>
void expect_the_published_map() {
  const std::vector<double> published = published_map(kSigned);
  ASSERT_EQ(published.size(), 256u);
  for (size_t code = 0; code < 256; ++code) {
    // bitsandbytes computes in f32 and rounds four times.
    EXPECT_NEAR(MomentMap<kSigned>::numbers()[code], published[code], 4 * 0x1p-24 * std::abs(published[code])) << code;
  }
}

TEST(MomentMaps, EqualThoseOfBitsandbytes) {
  expect_the_published_map<true>();
  expect_the_published_map<false>();
}

// Compares code() with a search through the published map. Both choices are right if the value is in the middle of two
// numbers, up to the rounding errors of value · inverse, of the numbers and of the level: at most 2^-20 of the value.
template <bool kSigned>
void expect_nearest(float value, float largest, const std::vector<double>& map) {
  const uint8_t code = MomentMap<kSigned>::code(value, MomentMap<kSigned>::inverse_of(largest));
  const double exact = static_cast<double>(value) / static_cast<double>(largest);
  if (!kSigned && value > 0) {
    ASSERT_GT(code, 0) << value;
    if (exact < map[1]) {
      ASSERT_EQ(code, 1) << value;
      return;
    }
  }
  double nearest = std::numeric_limits<double>::infinity();
  for (const double number : map) nearest = std::min(nearest, std::abs(number - exact));
  ASSERT_LE(std::abs(map[code] - exact), nearest + 0x1p-20 * std::abs(exact)) << value << " of " << largest;
}

template <bool kSigned>
void expect_nearest_codes() {
  const std::vector<double> map = published_map(kSigned);
  RandomStream random(4, kSigned);
  for (int i = 0; i < 200000; ++i) {
    const auto largest =
        static_cast<float>(std::ldexp(1 + random.next_uniform(), static_cast<int>(random.next_below(215)) - 90));
    const auto magnitude = static_cast<float>(largest * std::pow(10.0, -8 * random.next_uniform()));
    expect_nearest<kSigned>(kSigned && i % 2 ? -magnitude : magnitude, largest, map);
  }
  for (size_t code = 0; code + 1 < map.size(); ++code) {  // around each number, and around the middle of two numbers
    for (const double near : {map[code], (map[code] + map[code + 1]) / 2}) {
      for (const double factor : {1 - 1e-3, 1 - 1e-6, 1.0, 1 + 1e-6, 1 + 1e-3}) {
        const double value = std::clamp(near * factor, kSigned ? -1.0 : 0.0, 1.0);
        for (const float largest : {1.0f, 3.7e-12f}) {
          expect_nearest<kSigned>(static_cast<float>(value) * largest, largest, map);
        }
      }
    }
  }
}

TEST(MomentMaps, CodesAreNearest) {
  expect_nearest_codes<true>();
  expect_nearest_codes<false>();
}

// The number of each code has this code, so values that do not change keep their codes.
TEST(MomentMaps, NumbersKeepTheirCodes) {
  for (const float largest : {1.0f, 2.9e-7f, 5e20f}) {
    for (int code = 0; code < 256; ++code) {
      const auto byte = static_cast<uint8_t>(code);
      const float first = MomentMap<true>::number(byte) * largest, second = MomentMap<false>::number(byte) * largest;
      EXPECT_EQ(MomentMap<true>::code(first, MomentMap<true>::inverse_of(largest)), code);
      EXPECT_EQ(MomentMap<false>::code(second, MomentMap<false>::inverse_of(largest)), code);
    }
  }
}

TEST(MomentMaps, ExtremesHaveCodes) {
  constexpr float kMost = std::numeric_limits<float>::max(), kLeast = std::numeric_limits<float>::min();
  EXPECT_EQ(MomentMap<true>::code(0, 0), 127);
  EXPECT_EQ(MomentMap<false>::code(0, 0), 0);
  for (const float largest : {kMost, 1e38f, 1.0f, kLeast}) {
    const float of_first = MomentMap<true>::inverse_of(largest), of_second = MomentMap<false>::inverse_of(largest);
    EXPECT_EQ(MomentMap<true>::code(largest, of_first), 255);
    EXPECT_EQ(MomentMap<true>::code(-largest, of_first), 0);
    EXPECT_EQ(MomentMap<false>::code(largest, of_second), 255);
    EXPECT_EQ(MomentMap<false>::code(0, of_second), 0);
    EXPECT_GE(MomentMap<false>::code(kLeast, of_second), 1);  // a second moment above 0 never becomes 0
  }
}

TEST(QuantizedMoments, KeepValuesOfEachBlock) {
  RandomStream random(6, 0);
  for (const DType dtype : {DType::q8_signed, DType::q8_unsigned}) {
    const bool is_signed = dtype == DType::q8_signed;
    const std::vector<double> map = published_map(is_signed);
    for (const int64_t count : {1, 255, 256, 257, 1000}) {
      std::vector<float> values;
      for (int64_t i = 0; i < count; ++i) {
        // The second block has only zeros.
        const double value = std::ldexp(random.next_uniform(), -static_cast<int>(i % 20) - static_cast<int>(i / 256));
        values.push_back(i / 256 == 1 ? 0 : static_cast<float>(is_signed && i % 3 ? -value : value));
      }
      const int64_t num_blocks = (count + 255) / 256;
      std::vector<std::byte> blocks(static_cast<size_t>(num_blocks) * size_of(dtype));
      quantize(values.data(), count, dtype, blocks.data());
      std::vector<float> back(static_cast<size_t>(256 * num_blocks));
      dequantize(blocks.data(), dtype, 0, std::ssize(back), back.data());
      for (size_t i = 0; i < back.size(); ++i) {
        const float value = i < values.size() ? values[i] : 0;
        float largest = 0;
        for (size_t j = i / 256 * 256; j < std::min(values.size(), i / 256 * 256 + 256); ++j) {
          largest = std::max(largest, std::abs(values[j]));
        }
        if (value == 0) {
          ASSERT_EQ(back[i], 0.0f) << i;
          continue;
        }
        double nearest = std::numeric_limits<double>::infinity();
        for (const double number : map) {
          if (is_signed || number > 0) nearest = std::min(nearest, std::abs(number * largest - value));
        }
        ASSERT_NEAR(back[i], value, nearest + 0x1p-20 * std::abs(value)) << i;
      }
      std::vector<float> part(static_cast<size_t>(count / 2));
      dequantize(blocks.data(), dtype, count / 3, count / 2, part.data());
      EXPECT_TRUE(std::equal(part.begin(), part.end(), back.begin() + count / 3));
    }
  }
}

}  // namespace
}  // namespace tessera
