#include "tessera/base/error.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(Printable, CutsBetweenCharactersAndReplacesControls) {
  EXPECT_EQ(printable("a\tb\x1b[1m\x7fé"), "a?b?[1m?é");
  EXPECT_EQ(printable(std::string(100, 'x')), std::string(100, 'x'));
  // The limit counts bytes, and é has two bytes.
  EXPECT_EQ(printable("xéé", 3), "xé…");
  EXPECT_EQ(printable("xéé", 4), "xé…");
}

}  // namespace
}  // namespace tessera
