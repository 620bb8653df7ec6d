#include "tessera/base/float8.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>

#include "tessera/base/read_file.h"
#include "tessera/base/record.h"

namespace tessera {
namespace {

// tools/make_float8_references.py wrote the file with ml_dtypes.
TEST(Float8, ConvertsAsMlDtypes) {
  const std::string path = std::string(TESSERA_TEST_DIR) + "/unit/base/e4m3.json";
  const Record reference = record_from_json(read_file(path, {}), path);
  const Record& values = reference["values"];
  ASSERT_EQ(values.size(), 256u);
  for (size_t code = 0; code < values.size(); ++code) {
    const float value = e4m3_to_f32(static_cast<uint8_t>(code));
    if (values[code].is_null()) {
      EXPECT_TRUE(std::isnan(value)) << code;
    } else {
      EXPECT_EQ(static_cast<double>(value), values[code].get<double>()) << code;
      EXPECT_EQ(std::signbit(value), code >= 0x80) << code;
      EXPECT_EQ(f32_to_e4m3(value), code);
    }
  }
  const Record& conversions = reference["from_f32"];
  ASSERT_GE(conversions.size(), 2000u);
  for (const Record& one : conversions) {
    const auto number = std::bit_cast<float>(one[0].get<uint32_t>());
    EXPECT_EQ(f32_to_e4m3(number), one[1].get<int>()) << number;
  }
}

TEST(Float8, LimitsLargeValuesAndKeepsNaN) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const float large : {448.0f, 449.0f, 464.0f, 480.0f, 1e30f, kInfinity}) {
    EXPECT_EQ(f32_to_e4m3(large), 0x7e);
    EXPECT_EQ(f32_to_e4m3(-large), 0xfe);
  }
  EXPECT_EQ(f32_to_e4m3(NAN) & 0x7f, 0x7f);
  EXPECT_EQ(f32_to_e4m3(-NAN) & 0x7f, 0x7f);
}

TEST(Float8, ScalesOfBothKinds) {
  using enum Float8ScaleKind;
  const auto scale_of = [](float largest, Float8ScaleKind kind) {
    return float8_scale(std::bit_cast<uint32_t>(largest), kind);
  };
  for (int exponent = -126; exponent < 128; ++exponent) {
    for (const float mantissa : {1.0f, 1.25f, 1.75f, std::nextafter(1.75f, 2.0f), std::nextafter(2.0f, 0.0f)}) {
      const float largest = std::ldexp(mantissa, exponent);
      const auto [power, inverse] = scale_of(largest, power_of_two);
      EXPECT_EQ(power * inverse, 1);
      EXPECT_LE(largest * inverse, 448);
      if (exponent >= -118) {
        EXPECT_EQ(power, std::ldexp(1.0f, mantissa <= 1.75f ? exponent - 8 : exponent - 7)) << largest;
        EXPECT_GT(largest * inverse * 2, 448);
      } else {
        EXPECT_EQ(power, 0x1p-126f);
      }
      const auto [quotient, inverse_quotient] = scale_of(largest, Float8ScaleKind::quotient);
      EXPECT_TRUE(std::isfinite(inverse_quotient));
      if (exponent < -100) {
        EXPECT_EQ(quotient, power);
      } else {
        EXPECT_EQ(quotient, largest / 448);
        EXPECT_EQ(f32_to_e4m3(largest * inverse_quotient), 0x7e);  // 448: the largest value is exact
      }
    }
  }
  for (const Float8ScaleKind kind : {quotient, power_of_two}) {
    EXPECT_EQ(scale_of(0, kind).scale, 1);
    EXPECT_EQ(scale_of(0, kind).inverse, 1);
    for (const float broken : {std::numeric_limits<float>::infinity(), NAN}) {
      EXPECT_TRUE(std::isnan(scale_of(broken, kind).scale));
      EXPECT_TRUE(std::isnan(scale_of(broken, kind).inverse));
    }
  }
}

}  // namespace
}  // namespace tessera
