#include "ops_testing.h"

namespace tessera::testing {
namespace {

template <typename T>
struct FactorsTest : ::testing::Test {};
using FloatTypes = ::testing::Types<float, double>;
TYPED_TEST_SUITE(FactorsTest, FloatTypes);

// Two factors, with rows and columns between them that belong to none.
TYPED_TEST(FactorsTest, JoinAndSplitMoveEachFactorToItsPlace) {
  using T = TypeParam;
  constexpr int64_t kRows = 40, kColumns = 9;
  auto first = random_values<T>(17 * 3, 1), second = random_values<T>(20 * 4, 2);
  Rig rig(3);
  const std::vector<FactorPlace> places{{view(first, {17, 3}), 0.5, 0, 0}, {view(second, {20, 4}), -3, 18, 4}};
  std::vector<T> joined(kRows * kColumns, T(NAN));
  const View matrix = view(joined, {kRows, kColumns});
  rig->join_factors(places, matrix);
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t column = 0; column < kColumns; ++column) {
      T expected = 0;
      if (row < 17 && column < 3) expected = T(0.5) * first[static_cast<size_t>(row * 3 + column)];
      if (row >= 18 && row < 38 && column >= 4 && column < 8) {
        expected = T(-3.0 * static_cast<double>(second[static_cast<size_t>((row - 18) * 4 + column - 4)]));
      }
      EXPECT_EQ(joined[static_cast<size_t>(row * kColumns + column)], expected);
    }
  }
  const std::vector<T> before = first, of_second = second;
  rig->split_factors(matrix, places, false);
  for (size_t i = 0; i < first.size(); ++i) EXPECT_NEAR(first[i], before[i] * T(1.25), 1e-6);
  rig->split_factors(matrix, places, true);
  for (size_t i = 0; i < second.size(); ++i) EXPECT_NEAR(second[i], of_second[i] * T(9), 1e-5);
}

}  // namespace
}  // namespace tessera::testing
