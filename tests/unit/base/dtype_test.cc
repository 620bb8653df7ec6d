#include "tessera/base/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace tessera {
namespace {

TEST(F16, EveryValueSurvivesTheWayToF32AndBack) {
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
  EXPECT_EQ(f16_to_f32(f32_to_f16(65519.0f)), 65504.0f);                   // just below the step to infinity
  EXPECT_TRUE(std::isinf(f16_to_f32(f32_to_f16(65520.0f))));
  EXPECT_EQ(f16_to_f32(f32_to_f16(0x1p-25f)), 0.0f);  // half of the smallest subnormal, to even
  EXPECT_EQ(f16_to_f32(f32_to_f16(0x1.8p-25f)), 0x1p-24f);
}

TEST(Bf16, EveryValueSurvivesTheWayToF32AndBack) {
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

TEST(Convert, GoesBetweenAllFloatingPointTypes) {
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
