#include "tessera/report/sheet.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "tessera/base/text.h"

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

// Tables with many columns, long names, long numbers and wide characters fit into 120 columns. Every name and every
// value is still there.
TEST(Sheets, FitATerminal) {
  std::mt19937 source(5);
  const auto below = [&](size_t n) { return static_cast<int>(source() % n); };
  for (int round = 0; round < 300; ++round) {
    Sheet sheet{.name = "t",
                .title = std::string(static_cast<size_t>(below(200)), 'T'),
                .columns = {},
                .rows = {},
                .remarks = {}};
    const int num_columns = 1 + below(30), num_rows = 1 + below(6);
    for (int c = 0; c < num_columns; ++c) {
      std::string title = "c" + std::to_string(c);
      for (int words = below(4); words > 0; --words) title += " title";
      sheet.columns.push_back({title, title, c > 0 && below(4) > 0});
    }
    for (int r = 0; r < num_rows; ++r) {
      std::vector<Cell> row;
      for (int c = 0; c < num_columns; ++c) {
        std::string text = "v" + std::to_string(below(3));
        if (c == 0) text = "runs/of/a" + std::string(static_cast<size_t>(below(150)), 'x') + "/" + std::to_string(r);
        if (c == 0 && below(3) == 0) text += "学习率学习率学习率学习率学习率学习率学习率学习率学习率学习率学习率学习率";
        row.push_back({.text = text});
        if (below(9) == 0) row.back().notes = {"a long note " + std::string(static_cast<size_t>(below(150)), 'n')};
      }
      sheet.rows.push_back(std::move(row));
    }
    sheet.best_row = 0;
    const std::string text = sheet_for_terminal(sheet, {});
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) ASSERT_LE(display_width(line), kSheetColumns) << text;
    for (int c = 0; c < num_columns; ++c) ASSERT_THAT(text, HasSubstr("c" + std::to_string(c))) << text;
  }
}

TEST(Sheets, NarrowTables) {
  Sheet sheet{.name = "t", .title = "", .columns = {{"run", "run"}, {"same", "same", true}}, .rows = {}, .remarks = {}};
  for (const char* run : {"runs/a/one", "runs/a/two"}) sheet.rows.push_back({{.text = run}, {.text = "1234567"}});
  EXPECT_THAT(sheet_for_terminal(sheet, {}), HasSubstr("| runs/a/one | 1234567 |"));  // it fits, so nothing is left out
  for (int c = 0; c < 11; ++c) {
    sheet.columns.push_back({"number " + std::to_string(c), "n", true});
    for (auto& row : sheet.rows) row.push_back({.text = row[0].text == "runs/a/one" ? "1.5" : "2.5"});
  }
  sheet.best_row = 1;
  const std::string text = sheet_for_terminal(sheet, {});
  EXPECT_THAT(text, HasSubstr("| run        | number | number |"));
  EXPECT_THAT(text, HasSubstr("| two (best) |    2.5 |"));
  EXPECT_THAT(text, HasSubstr("\nAll names begin with runs/a/\nSame in all rows: same 1234567"));
  EXPECT_THAT(sheet_as_markdown(sheet), HasSubstr("| **runs/a/two** (best) |"));
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
