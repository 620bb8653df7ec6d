#include "tessera/base/view.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(Shape, CountsAndPrints) {
  EXPECT_EQ((Shape{3, 4, 5}).num_elems(), 60);
  EXPECT_EQ((Shape{}).num_elems(), 1);
  EXPECT_EQ((Shape{3, 4}).to_string(), "[3, 4]");
  EXPECT_EQ((Shape{2, 3}), (Shape{2, 3}));
  EXPECT_NE((Shape{2, 3}), (Shape{2, 3, 1}));
}

TEST(View, TakesRows) {
  float values[6] = {0, 1, 2, 3, 4, 5};
  const View view = view_of(values, {3, 2});
  EXPECT_EQ(view.rows(1, 3).as<float>()[0], 2);
  EXPECT_EQ(view.rows(1, 3).shape, (Shape{2, 2}));
  EXPECT_EQ(view.rows(3, 3).num_elems(), 0);
  EXPECT_EQ(view.bytes(), 24);
  EXPECT_EQ(View{}.bytes(), 0);
}

TEST(ViewDeathTest, RefusesAnotherTypeAndRowsOutside) {
  float values[2] = {};
  EXPECT_DEATH(view_of(values, {2}).as<double>(), "assertion failed");
  EXPECT_DEATH(view_of(values, {2}).rows(1, 3), "assertion failed");
}

}  // namespace
}  // namespace tessera
