#include <algorithm>

#include "ops_testing.h"
#include "tessera/ops/dropout_mask.h"

namespace tessera::testing {
namespace {

// Applies dropout to an array of ones and returns the result: 1 / (1 − rate) for a kept element, 0 for a dropped one.
std::vector<float> mask_of(Rig& rig, float rate, uint64_t seed, uint32_t site, std::vector<int64_t>& ids,
                           int64_t columns) {
  const auto rows = static_cast<int64_t>(ids.size());
  std::vector<float> ones(static_cast<size_t>(rows * columns), 1.0f), kept(ones.size());
  rig->dropout_backward(view(ones, {rows, columns}), {rate, seed, site, view(ids)}, view(kept, {rows, columns}));
  return kept;
}

TEST(Dropout, EqualsItsDefinition) {
  Rig rig;
  auto ids = row_ids(5);
  const auto kept = mask_of(rig, 0.3f, 77, 3, ids, 203);
  for (int64_t row = 0; row < 5; ++row) {
    for (uint32_t column = 0; column < 203; ++column) {
      const float expected = dropout_keeps(0.3f, 77, 3, ids[static_cast<size_t>(row)], column) ? 1 / (1 - 0.3f) : 0;
      ASSERT_EQ(kept[static_cast<size_t>(row * 203 + column)], expected);
    }
  }
}

TEST(Dropout, KeepsTheRightShareEverywhere) {
  Rig rig;
  auto ids = row_ids(512);
  const int64_t columns = 512;
  for (float rate : {0.1f, 0.5f, 0.9f}) {
    const auto kept = mask_of(rig, rate, 1, 1, ids, columns);
    std::vector<int64_t> by_column(512), by_row(512);
    int64_t total = 0, neighbours = 0;
    for (size_t i = 0; i < kept.size(); ++i) {
      if (kept[i] == 0) continue;
      ++total, ++by_row[i / 512], ++by_column[i % 512];
      neighbours += i + 1 < kept.size() && kept[i + 1] != 0;
    }
    // `neighbours` counts pairs of adjacent elements that are both kept. Each tolerance is at least five standard
    // deviations of the count that it limits, if the draws are independent.
    const double p = 1 - static_cast<double>(rate), n = 512 * 512;
    EXPECT_NEAR(static_cast<double>(total), n * p, 6 * std::sqrt(n * p * (1 - p)));
    EXPECT_NEAR(static_cast<double>(neighbours), n * p * p, 6 * std::sqrt(n * p * p));
    for (size_t i = 0; i < 512; ++i) {
      ASSERT_NEAR(static_cast<double>(by_row[i]), 512 * p, 6 * std::sqrt(512 * p * (1 - p)));
      ASSERT_NEAR(static_cast<double>(by_column[i]), 512 * p, 6 * std::sqrt(512 * p * (1 - p)));
    }
  }
}

TEST(Dropout, FollowsTheRowIdNotTheRow) {
  Rig two(2), three(3);
  auto ids = row_ids(37);
  auto reversed = ids;
  std::reverse(reversed.begin(), reversed.end());
  const auto a = mask_of(two, 0.4f, 9, 2, ids, 100), b = mask_of(three, 0.4f, 9, 2, reversed, 100);
  for (size_t row = 0; row < 37; ++row) {
    for (size_t c = 0; c < 100; ++c) ASSERT_EQ(a[row * 100 + c], b[(36 - row) * 100 + c]);
  }
}

// On average, two independent masks at rate 0.5 agree in half of their 4,096 elements. The standard deviation is 32.
TEST(Dropout, SeedAndSiteChangeTheMask) {
  Rig rig;
  auto ids = row_ids(16);
  const auto a = mask_of(rig, 0.5f, 1, 1, ids, 256);
  for (const auto& b : {mask_of(rig, 0.5f, 2, 1, ids, 256), mask_of(rig, 0.5f, 1, 2, ids, 256)}) {
    int64_t equal = 0;
    for (size_t i = 0; i < a.size(); ++i) equal += a[i] == b[i];
    EXPECT_NEAR(static_cast<double>(equal), 2048, 6 * 32);
  }
}

TEST(Dropout, RateZeroKeepsAll) {
  Rig rig;
  auto x = random_values<float>(60, 1);
  std::vector<float> y(60);
  rig->dropout_backward(view(x, {6, 10}), {}, view(y, {6, 10}));
  EXPECT_EQ(x, y);
}

}  // namespace
}  // namespace tessera::testing
