#include "tessera/base/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace tessera {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(Text, SplitsLists) {
  EXPECT_THAT(split_list(""), IsEmpty());
  EXPECT_THAT(split_list(" a, b c ,,d"), ElementsAre("a", "b c", "d"));
  EXPECT_THAT(split_list("\ta,"), ElementsAre("\ta"));
}

TEST(Text, JoinsWords) {
  EXPECT_EQ(joined(std::vector<std::string>{}), "");
  EXPECT_EQ(joined(std::vector<std::string>{"", "b", ""}, "+"), "+b+");
  EXPECT_EQ(joined(std::set<std::string>{"b", "a"}), "a, b");
}

TEST(Text, TrimsBlanks) {
  EXPECT_EQ(trimmed(" \t a b\r\n"), "a b");
  EXPECT_EQ(trimmed(" \v\f "), "");
  EXPECT_EQ(trimmed("\ta ", " "), "\ta");
}

TEST(Text, NaturalOrderComparesNumbers) {
  std::vector<std::string> names{"10", "a10b", "9", "a9b", "a", "a09b", "b1"};
  std::sort(names.begin(), names.end(), natural_less);
  EXPECT_THAT(names, ElementsAre("9", "10", "a", "a09b", "a9b", "a10b", "b1"));
}

}  // namespace
}  // namespace tessera
