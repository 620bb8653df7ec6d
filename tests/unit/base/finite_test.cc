#include "tessera/base/finite.h"

#include <gtest/gtest.h>

#include <vector>

#include "tessera/base/random.h"

namespace tessera {
namespace {

constexpr DType kTypes[] = {DType::f64, DType::f32, DType::f16, DType::bf16};

// Compares find_non_finite() with a plain search: convert each element to `as` and take the first one that is not
// finite. The values are random. In some arrays, values exceed the range of f16 or f32, or one value is NaN or
// infinite.
TEST(FindNonFinite, AgreesWithConversion) {
  RandomStream random(3, 0);
  for (const DType from : kTypes) {
    for (const DType as : kTypes) {
      for (int turn = 0; turn < 60; ++turn) {
        const auto count = static_cast<int64_t>(random.next_below(9000));
        const double most = turn % 3 ? 1 : turn % 2 ? 1e39 : 70000;
        std::vector<double> values(static_cast<size_t>(count));
        for (double& value : values) value = most * (static_cast<double>(random.next_below(2000)) / 1000 - 1);
        if (count > 0 && turn % 4 == 1)
          values[random.next_below(static_cast<uint64_t>(count))] = turn % 8 > 4 ? NAN : INFINITY;
        std::vector<std::byte> stored(values.size() * size_of(from));
        std::vector<double> back(values.size());
        convert(values.data(), DType::f64, stored.data(), from, values.size());
        int64_t expected = -1;
        for (size_t i = 0; i < values.size() && expected < 0; ++i) {
          std::byte narrow[8];
          double value;
          convert(stored.data() + i * size_of(from), from, narrow, as, 1);
          convert(narrow, as, &value, DType::f64, 1);
          if (!std::isfinite(value)) expected = static_cast<int64_t>(i);
        }
        EXPECT_EQ(find_non_finite({stored.data(), from, {count}}, as), expected)
            << name_of(from) << " as " << name_of(as) << " " << turn;
      }
    }
  }
}

TEST(FindNonFinite, KnowsTheRangeOfEachType) {
  for (const DType as : {DType::f16, DType::bf16, DType::f32}) {
    double value = largest_of(as);
    const View view{reinterpret_cast<std::byte*>(&value), DType::f64, {1}};
    EXPECT_EQ(find_non_finite(view, as), -1) << name_of(as);
    value *= -1.01;
    EXPECT_EQ(find_non_finite(view, as), 0) << name_of(as);
  }
}

}  // namespace
}  // namespace tessera
