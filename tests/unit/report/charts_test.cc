#include "tessera/report/charts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

namespace tessera {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

TEST(Charts, LeaveOutWhatIsNotFinite) {
  const double nan = std::nan(""), inf = std::numeric_limits<double>::infinity();
  EXPECT_EQ(line_chart({}, {.title = "t", .x_title = "x"}), "");
  EXPECT_EQ(line_chart({{"a", 0, {1, 2}, {nan, inf}}}, {.title = "t", .x_title = "x"}), "");
  const std::string chart = line_chart({{"a<b", 1, {1, 2, 3}, {1, nan, 1}}}, {.title = "t", .x_title = "x"});
  EXPECT_THAT(chart, HasSubstr("a&lt;b"));
  EXPECT_THAT(chart, Not(HasSubstr("nan")));
  EXPECT_THAT(chart, Not(HasSubstr("inf")));
}

}  // namespace
}  // namespace tessera
