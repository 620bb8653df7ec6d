#include "tessera/base/random.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace tessera {
namespace {

// The expected numbers are the known answers for philox4x32-10 in the file kat_vectors of the library Random123.
TEST(Philox, ReturnsTheKnownAnswers) {
  EXPECT_EQ(philox(0, 0, 0), (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox(~uint64_t{0}, ~uint64_t{0}, ~uint64_t{0}),
            (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

TEST(RandomStream, IsUniform) {
  RandomStream random(1, 2);
  constexpr int kDraws = 100000;
  double sum = 0, squares = 0;
  for (int i = 0; i < kDraws; ++i) {
    const double x = random.next_uniform();
    ASSERT_TRUE(x >= 0 && x < 1);
    sum += x;
    squares += x * x;
  }
  // The tolerances are five standard deviations of the means of x and x².
  EXPECT_NEAR(sum / kDraws, 0.5, 5 * std::sqrt(1.0 / 12 / kDraws));
  EXPECT_NEAR(squares / kDraws, 1.0 / 3, 5 * std::sqrt(4.0 / 45 / kDraws));
}

TEST(RandomStream, DrawsBelowABoundEvenly) {
  RandomStream random(3, 0);
  std::array<int, 7> counts{};
  for (int i = 0; i < 70000; ++i) ++counts[random.next_below(7)];
  // The tolerance is about five standard deviations of a count: sqrt(70000 · 1/7 · 6/7) = 93.
  for (const int count : counts) EXPECT_NEAR(count, 10000, 500);
}

TEST(Shuffle, PermutesAndDependsOnlyOnSeedAndStream) {
  std::vector<int> a(100), b(100), c(100);
  for (auto* v : {&a, &b, &c}) std::iota(v->begin(), v->end(), 0);
  shuffle(std::span(a), 5, 1);
  shuffle(std::span(b), 5, 1);
  shuffle(std::span(c), 5, 2);
  EXPECT_EQ(a, b);
  EXPECT_NE(a, c);
  std::sort(a.begin(), a.end());
  for (int i = 0; i < 100; ++i) EXPECT_EQ(a[static_cast<size_t>(i)], i);
}

}  // namespace
}  // namespace tessera
