#include "tessera/base/error.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(JsonReason, LeavesOutTheLibrarysCodeAndLongQuotations) {
  EXPECT_EQ(json_reason("[json.exception.parse_error.101] parse error at line 1: [1] is odd"),
            "parse error at line 1: [1] is odd");
  EXPECT_EQ(json_reason("out of memory"), "out of memory");
  std::string text = "x";
  for (int i = 0; i < 1000; ++i) text += "é";
  const std::string cut = json_reason("[json.exception.parse_error.101] " + text);
  EXPECT_EQ(cut, text.substr(0, 239) + "…");
}

}  // namespace
}  // namespace tessera
