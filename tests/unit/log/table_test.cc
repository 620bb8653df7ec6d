#include "tessera/log/table.h"

#include <gtest/gtest.h>

#include <cmath>

#include "screen.h"
#include "tessera/base/text.h"

namespace tessera {
namespace {

TEST(Text, MeasuresItsWidth) {
  EXPECT_EQ(display_width(""), 0);
  EXPECT_EQ(display_width("abc"), 3);
  EXPECT_EQ(display_width("Hà Nội"), 6);
  EXPECT_EQ(display_width("e\u0301"), 1);  // a combining accent
  EXPECT_EQ(display_width("北京"), 4);
  EXPECT_EQ(display_width("🚀 ok"), 5);
  EXPECT_EQ(display_width("━╸─"), 3);
  // In invalid UTF-8, each wrong byte and each incomplete character has one column.
  EXPECT_EQ(display_width("\xff\x80 \xe5\x8c"), 4);
}

TEST(Text, CutsBetweenCharacters) {
  EXPECT_EQ(cut_to_width("abc", 5), "abc");
  EXPECT_EQ(cut_to_width("abc", 2), "ab");
  EXPECT_EQ(cut_to_width("北京", 3), "北");
  EXPECT_EQ(cut_to_width("e\u0301a", 1), "e\u0301");
  EXPECT_EQ(cut_to_width("abc", 0), "");
}

TEST(Text, Bytes) {
  const std::pair<int64_t, const char*> cases[] = {
      {0, "0 B"},
      {1023, "1023 B"},
      {1024, "1.00 KiB"},
      {1536, "1.50 KiB"},
      {10 * 1024, "10.0 KiB"},
      {1047552 - 1, "1023 KiB"},  // 1023 KiB minus one byte
      {1048064, "1.00 MiB"},      // 1023.5 KiB, which would round to 1024 KiB
      {int64_t{15247} << 20, "14.9 GiB"},
      {int64_t{3} << 40, "3.00 TiB"},
      {INT64_MAX, "8.00 EiB"},
      {-2048, "-2.00 KiB"},
  };
  for (const auto& [bytes, text] : cases) EXPECT_EQ(format_bytes(bytes), text);
}

TEST(Text, Counts) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(1000), "1,000");
  EXPECT_EQ(format_count(559214592), "559,214,592");
  EXPECT_EQ(format_count(-123), "-123");
  EXPECT_EQ(format_count(-1234567), "-1,234,567");
}

TEST(Text, Rates) {
  const std::pair<double, const char*> cases[] = {
      {0, "0.00"},     {0.01234, "0.0123"}, {0.99949, "0.999"}, {0.9996, "1.00"},  {7.321, "7.32"}, {9.996, "10.0"},
      {73.21, "73.2"}, {99.96, "100"},      {12345.6, "12346"}, {INFINITY, "inf"}, {NAN, "nan"}};
  for (const auto& [rate, text] : cases) EXPECT_EQ(format_rate(rate), text);
}

TEST(Text, Clocks) {
  EXPECT_EQ(format_clock(0), "0:00");
  EXPECT_EQ(format_clock(59.6), "1:00");
  EXPECT_EQ(format_clock(754), "12:34");
  EXPECT_EQ(format_clock(3723), "1:02:03");
  EXPECT_EQ(format_clock(-1), "--:--");
  EXPECT_EQ(format_clock(INFINITY), "--:--");
  EXPECT_EQ(format_clock(NAN), "--:--");
}

Table strategies() {
  Table table({{"strategy"}, {"memory", Align::kRight}, {"samples/s", Align::kRight}});
  table.row({"zero0", "12.5 GiB", "9.13"}).row({"zero3", "900 MiB", "101"}).rule().row({"北京", "", "1"});
  return table;
}

TEST(Table, DrawsFramesInUnicode) {
  EXPECT_EQ(strategies().render(kFullTerminal),
            "╭──────────┬──────────┬───────────╮\n"
            "│ strategy │   memory │ samples/s │\n"
            "├──────────┼──────────┼───────────┤\n"
            "│ zero0    │ 12.5 GiB │      9.13 │\n"
            "│ zero3    │  900 MiB │       101 │\n"
            "├──────────┼──────────┼───────────┤\n"
            "│ 北京     │          │         1 │\n"
            "╰──────────┴──────────┴───────────╯");
}

TEST(Table, DrawsFramesInAscii) {
  EXPECT_EQ(strategies().render({}),
            "+----------+----------+-----------+\n"
            "| strategy |   memory | samples/s |\n"
            "+----------+----------+-----------+\n"
            "| zero0    | 12.5 GiB |      9.13 |\n"
            "| zero3    |  900 MiB |       101 |\n"
            "+----------+----------+-----------+\n"
            "| 北京     |          |         1 |\n"
            "+----------+----------+-----------+");
}

TEST(Table, NeedsNoHeader) {
  Table table({{}, {}});
  EXPECT_EQ(table.row({"exact match", "0.84"}).row({"model", "runs/x"}).render({}),
            "+-------------+--------+\n"
            "| exact match | 0.84   |\n"
            "| model       | runs/x |\n"
            "+-------------+--------+");
}

}  // namespace
}  // namespace tessera
