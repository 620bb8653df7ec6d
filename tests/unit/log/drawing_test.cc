#include "tessera/log/drawing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace tessera {
namespace {

using testing::ElementsAre;

TEST(Drawing, EscapesText) {
  EXPECT_EQ(html_escaped("<b a=\"1\">&'</b>"), "&lt;b a=&quot;1&quot;&gt;&amp;&#39;&lt;/b&gt;");
  EXPECT_EQ(html_escaped("a\x01\xff"), "a?\xEF\xBF\xBD");
}

TEST(Drawing, ThinningKeepsEndsAndExtremes) {
  std::mt19937 random(7);
  std::vector<double> x, y;
  for (int i = 0; i < 10000; ++i) x.push_back(i), y.push_back(std::uniform_real_distribution<double>(0, 1)(random));
  y[5003] = 9, y[7777] = -9;
  thin(x, y, 200);
  EXPECT_LE(x.size(), 200u);
  EXPECT_GE(x.size(), 150u);
  EXPECT_EQ(x.front(), 0);
  EXPECT_EQ(x.back(), 9999);
  EXPECT_TRUE(std::is_sorted(x.begin(), x.end()));
  EXPECT_EQ(*std::max_element(y.begin(), y.end()), 9);
  EXPECT_EQ(*std::min_element(y.begin(), y.end()), -9);
  std::vector<double> few{1, 2}, values{3, 4};
  thin(few, values, 4);
  EXPECT_THAT(few, ElementsAre(1, 2));
}

TEST(Drawing, TicksAreRoundAndWithin) {
  EXPECT_THAT(ticks(0, 10, 5), ElementsAre(0, 2, 4, 6, 8, 10));
  EXPECT_THAT(ticks(-0.5, 1.1, 4), ElementsAre(-0.5, 0, 0.5, 1));
  EXPECT_TRUE(ticks(1, 1, 5).empty());
  std::mt19937 random(1);
  for (int i = 0; i < 300; ++i) {
    const double low = std::exp(std::uniform_real_distribution<double>(-20, 20)(random));
    const double high = low * (1 + std::exp(std::uniform_real_distribution<double>(-5, 5)(random)));
    const auto values = ticks(low, high, 5);
    EXPECT_GE(values.size(), 2u) << low << " " << high;
    EXPECT_LE(values.size(), 7u) << low << " " << high;
    for (const double value : values) EXPECT_TRUE(value >= low * 0.999999 && value <= high * 1.000001);
  }
}

TEST(Drawing, ShortNumbers) {
  EXPECT_EQ(short_number(0), "0");
  EXPECT_EQ(short_number(0.05), "0.05");
  EXPECT_EQ(short_number(5e-5), "5e-05");
  EXPECT_EQ(short_number(1234), "1234");
  EXPECT_EQ(short_number(12000), "12k");
  EXPECT_EQ(short_number(3.4e6), "3.4M");
}

}  // namespace
}  // namespace tessera
