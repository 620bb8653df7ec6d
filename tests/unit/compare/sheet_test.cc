#include "tessera/compare/sheet.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace tessera {
namespace {

using testing::HasSubstr;

Sheet small_sheet() {
  Sheet sheet{
      .name = "t", .title = "A | B", .columns = {{"run", "run"}, {"x", "x", true}}, .rows = {}, .remarks = {"End."}};
  sheet.rows.push_back({{.text = "a,\"b\""}, {.text = "1.50", .values = {1.5}, .notes = {"first"}, .is_number = true}});
  sheet.rows.push_back({{.text = "=cmd|x", .notes = {"second"}}, {.text = "-", .notes = {"first"}, .is_number = true}});
  return sheet;
}

TEST(Sheets, Marks) {
  EXPECT_EQ(mark_of(0), "a");
  EXPECT_EQ(mark_of(25), "z");
  EXPECT_EQ(mark_of(26), "aa");
  EXPECT_EQ(mark_of(27), "ab");
  EXPECT_EQ(mark_of(26 * 27), "aaa");
}

TEST(Sheets, OnATerminal) {
  EXPECT_EQ(sheet_for_terminal(small_sheet(), {}),
            "A | B\n"
            "+------------+----------+\n"
            "| run        |        x |\n"
            "+------------+----------+\n"
            "| a,\"b\"      | 1.50 [a] |\n"
            "| =cmd|x [b] |    - [a] |\n"
            "+------------+----------+\n"
            "[a] first\n[b] second\nEnd.");
}

TEST(Sheets, Markdown) {
  EXPECT_EQ(markdown_escaped("a|b_c*<d>`#\n"), "a\\|b\\_c\\*\\<d\\>\\`\\#?");
  EXPECT_EQ(sheet_as_markdown(small_sheet()),
            "### A \\| B\n\n| run | x |\n|---|---:|\n| a,\"b\" | 1.50 \\[a\\] |\n| =cmd\\|x \\[b\\] | - \\[a\\] |\n\n"
            "- \\[a\\] first\n- \\[b\\] second\n- End.");
}

TEST(Sheets, Csv) {
  EXPECT_EQ(csv_field("a"), "a");
  EXPECT_EQ(csv_field("a,b"), "\"a,b\"");
  EXPECT_EQ(csv_field("a\"b\nc"), "\"a\"\"b\nc\"");
  EXPECT_EQ(csv_field("=1+1"), "'=1+1");
  EXPECT_EQ(csv_field("-"), "-");
  EXPECT_EQ(sheet_as_csv(small_sheet()), "table,run,x,notes\nt,\"a,\"\"b\"\"\",1.5,first\nt,'=cmd|x,,second; first");
}

TEST(Sheets, CsvWithASpread) {
  Sheet sheet{.name = "t", .title = "", .columns = {{"x", "x", true}, {"y", "y", true}}, .rows = {}, .remarks = {}};
  sheet.rows.push_back(
      {{.text = "2", .values = {2}, .low = 1, .high = 3, .is_number = true}, {.text = "9", .values = {9}}});
  sheet.rows.push_back({{.text = "5", .values = {5}, .is_number = true}, {.text = "8, 9", .values = {8, 9}}});
  EXPECT_EQ(sheet_as_csv(sheet), "table,x,x_low,x_high,y,notes\nt,2,1,3,9,\nt,5,,,\"8, 9\",");
}

TEST(Sheets, Json) {
  const std::string json = to_json(sheet_as_record(small_sheet()));
  EXPECT_THAT(json, HasSubstr(R"("rows": [{"run": "a,\"b\"", "x": {"value": 1.5, "notes": ["first"]}})"));
  EXPECT_THAT(json, HasSubstr(R"("x": {"value": null, "notes": ["first"]})"));
}

}  // namespace
}  // namespace tessera
