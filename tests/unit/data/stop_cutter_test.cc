#include "tessera/data/stop_cutter.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tessera/base/random.h"

namespace tessera {
namespace {

std::string drawn(RandomStream& random, uint64_t most) {
  std::string text;
  for (uint64_t n = random.next_below(most); n > 0; --n) text += static_cast<char>('a' + random.next_below(2));
  return text;
}

// The text before the stop string that is complete first.
std::string cut(const std::string& text, const std::vector<std::string>& stops) {
  for (size_t end = 0; end <= text.size(); ++end) {
    const std::string_view so_far = std::string_view(text).substr(0, end);
    size_t longest = 0;
    for (const std::string& stop : stops) {
      if (so_far.ends_with(stop)) longest = std::max(longest, stop.size());
    }
    if (longest > 0) return text.substr(0, end - longest);
  }
  return text;
}

TEST(StopCutter, PartsAreTheTextBeforeTheFirstStopString) {
  RandomStream random(11, 0);
  int num_stopped = 0;
  for (int turn = 0; turn < 20000; ++turn) {
    std::vector<std::string> stops;
    for (uint64_t n = random.next_below(4); n > 0; --n) stops.push_back("a" + drawn(random, 6));
    const std::string text = drawn(random, 30), expected = cut(text, stops);
    StopCutter cutter(stops);
    std::string joined;
    for (size_t at = 0; at < text.size();) {
      const size_t size = random.next_below(5);
      joined += cutter.add(std::string_view(text).substr(at, size));
      at += size;
      ASSERT_TRUE(expected.starts_with(joined)) << text;
    }
    joined += cutter.finish();
    ASSERT_EQ(joined, expected) << text;
    ASSERT_EQ(cutter.has_stopped(), expected != text);
    num_stopped += cutter.has_stopped();
  }
  EXPECT_GT(num_stopped, 5000);
}

TEST(StopCutter, HoldsOnlyWhatMayBecomeAStopString) {
  StopCutter cutter({"\nUser:", "###"});
  EXPECT_EQ(cutter.add("It is 5.\n"), "It is 5.");
  EXPECT_EQ(cutter.add("Us"), "");
  EXPECT_EQ(cutter.add("ually #"), "\nUsually ");
  EXPECT_EQ(cutter.add("1.\nUser"), "#1.");
  EXPECT_EQ(cutter.add(": and"), "");
  EXPECT_TRUE(cutter.has_stopped());
  EXPECT_EQ(cutter.add("more"), "");
  EXPECT_EQ(cutter.finish(), "");
}

}  // namespace
}  // namespace tessera
