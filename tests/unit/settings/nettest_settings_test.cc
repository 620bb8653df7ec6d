#include <gtest/gtest.h>

#include <random>

#include "tessera/base/error.h"
#include "tessera/settings/resolve.h"
#include "tessera/settings/setting_words.h"

namespace tessera {
namespace {

constexpr int64_t kMiB = 1 << 20;

TEST(MessageSizes, TakeTheLettersOfNcclTests) {
  EXPECT_EQ(parse_message_sizes("8K,1M, 4G", ""), (std::vector<int64_t>{8192, kMiB, 4096 * kMiB}));
  EXPECT_EQ(parse_message_sizes("1MiB,1MB,500", ""), (std::vector<int64_t>{kMiB, 1'000'000, 500}));
  EXPECT_EQ(parse_message_sizes("", ""), std::vector<int64_t>{});
  EXPECT_EQ(message_sizes_text({8192, 1'000'000}), "8KiB,1MB");
  for (const char* bad : {"0", "8K,,1M", "-1", "K", "8X", "1M;2M", "nan", "1e30", "0.3"}) {
    EXPECT_THROW(parse_message_sizes(bad, "--sizes"), UsageError) << bad;
  }
}

TEST(MessageSizes, SurviveText) {
  std::mt19937_64 source(3);
  for (int i = 0; i < 1000; ++i) {
    std::vector<int64_t> sizes(1 + source() % 5);
    for (int64_t& bytes : sizes) {
      bytes = static_cast<int64_t>(1 + source() % 5000) << (source() % 30);
    }
    EXPECT_EQ(parse_message_sizes(message_sizes_text(sizes), ""), sizes);
    std::string letters;
    const char* const unit[] = {"", "K", "m", "G"};
    std::vector<int64_t> expected;
    for (int k = 0; k < 4; ++k) {
      const auto number = static_cast<int64_t>(1 + source() % 900);
      letters += (k ? "," : "") + std::to_string(number) + unit[k];
      expected.push_back(number << (10 * k));
    }
    EXPECT_EQ(parse_message_sizes(letters, ""), expected) << letters;
  }
}

TEST(Collectives, AreAListOrAll) {
  EXPECT_EQ(parse_collectives("all", ""), all_collectives());
  EXPECT_EQ(parse_collectives("All-Gather,broadcast,all_gather", ""),
            (std::vector<std::string>{"all_gather", "broadcast"}));
  EXPECT_THROW(parse_collectives("allreduce", "--collective"), UsageError);
  EXPECT_THROW(parse_collectives("", "--collective"), UsageError);
}

void check(const std::string& toml, Groups groups = kNettest | kPreflight) {
  check_consistent(resolve({.flags = {}, .environment = {}, .file = parse_config(toml, "a.toml")}, groups, "nettest",
                           {"nettest", "train"}));
}

TEST(NettestSettings, ContradictionsAreRefused) {
  check("sizes = \"8K\"\n");
  check("min_bytes = \"8K\"\nmax_bytes = \"1M\"\nstep_factor = 4\n");
  check("preflight_min_busbw = 5.0\n");  // accepted without `preflight`: other runs that use this file may set it
  EXPECT_THROW(check("sizes = \"8K\"\nmax_bytes = \"1M\"\n"), UsageError);
  EXPECT_THROW(check("min_bytes = \"2M\"\nmax_bytes = \"1M\"\n"), UsageError);
  EXPECT_THROW(check("step_factor = 1\n"), UsageError);
  EXPECT_THROW(check("dtype = \"f64\"\n"), UsageError);
}

}  // namespace
}  // namespace tessera
