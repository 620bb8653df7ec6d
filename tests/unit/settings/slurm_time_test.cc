#include "tessera/settings/slurm_time.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "tessera/base/error.h"

namespace tessera {
namespace {

// The expected numbers are seconds. A text with only one number, such as "90", is in minutes.
TEST(SlurmTime, Formats) {
  EXPECT_EQ(parse_slurm_time("90", ""), 5400);
  EXPECT_EQ(parse_slurm_time("90:30", ""), 5430);
  EXPECT_EQ(parse_slurm_time("4:00:05", ""), 14405);
  EXPECT_EQ(parse_slurm_time("1-12", ""), 129600);
  EXPECT_EQ(parse_slurm_time("1-12:30", ""), 131400);
  EXPECT_EQ(parse_slurm_time("0-0:0:1", ""), 1);
  EXPECT_EQ(slurm_time_text(131401), "1-12:30:01");
  EXPECT_EQ(slurm_time_text(59), "00:00:59");
}

// About half of the limits are at most one day. The texts of longer limits also contain a number of days.
TEST(SlurmTime, APrintedLimitReadsBack) {
  std::mt19937_64 source(1);
  for (int i = 0; i < 1000; ++i) {
    const auto seconds = static_cast<int64_t>(1 + source() % (source() % 2 == 0 ? 86400u : 86400u * 400));
    EXPECT_EQ(parse_slurm_time(slurm_time_text(seconds), ""), seconds) << slurm_time_text(seconds);
  }
}

// parse_slurm_time() either refuses a text of random characters or returns a positive time limit. slurm_time_text()
// prints this limit as a text that reads back as the same limit. No accepted text contains '.', a space or 'x'.
TEST(SlurmTime, RandomTexts) {
  std::mt19937_64 source(2);
  constexpr std::string_view kLetters = "0012359::--. x";
  int accepted = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string text;
    for (size_t length = source() % 9; text.size() < length;) text += kLetters[source() % kLetters.size()];
    try {
      const int64_t seconds = parse_slurm_time(text, "--time");
      ++accepted;
      EXPECT_GT(seconds, 0) << text;
      EXPECT_EQ(parse_slurm_time(slurm_time_text(seconds), ""), seconds) << text;
      EXPECT_EQ(text.find_first_of(". x"), std::string::npos) << text;
    } catch (const UsageError& error) {
      EXPECT_NE(std::string(error.what()).find("--time: is not a time limit"), std::string::npos);
    }
  }
  EXPECT_GT(accepted, 500);  // enough texts are valid, so the checks of valid texts run often
}

}  // namespace
}  // namespace tessera
