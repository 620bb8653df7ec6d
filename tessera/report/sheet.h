// A table of a report, and its forms: for a terminal, Markdown, CSV and JSON.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/record.h"
#include "tessera/log/console.h"

namespace tessera {

struct Cell {
  std::string text;                     // as shown, without the marks of notes
  std::vector<double> values{};         // the numbers in `text`; empty: the cell has words, or its number is missing
  std::optional<double> low{}, high{};  // the lowest and the highest value of several runs
  std::vector<std::string> notes{};     // become footnotes
  bool is_number = false;  // the cell is for numbers; without `values`, its CSV field is empty and its JSON is null
};

struct SheetColumn {
  std::string title;
  std::string name;        // the name in CSV and JSON
  bool is_number = false;  // the column is aligned to the right
  std::vector<std::string> notes{};
};

struct Sheet {
  std::string name, title;
  std::vector<SheetColumn> columns;
  std::vector<std::vector<Cell>> rows;
  std::vector<std::string> remarks;  // below the table
  std::optional<size_t> best_row{};  // the row of the best run, which gets a mark
};

// All different notes of a sheet: first the notes of columns, then the notes of cells. Note i has the mark mark_of(i).
std::vector<std::string> notes_of(const Sheet& sheet);
std::string mark_of(size_t index);  // a, b, ... z, aa, ab, ...
// The marks of `notes`, such as "[a][c]". `all` is the result of notes_of() for the sheet.
std::string marks_of(const std::vector<std::string>& notes, const std::vector<std::string>& all);

// The sheet in lines of at most kSheetColumns columns. If the table is too wide, its columns with the same text in all
// rows become a line below it, and names are wrapped. If it is still too wide, it is divided into several tables.
inline constexpr int kSheetColumns = 120;
std::string sheet_for_terminal(const Sheet& sheet, const Terminal& terminal);
std::string sheet_as_markdown(const Sheet& sheet);
// CSV as in RFC 4180, with a header. The first column has the name of the sheet. The last column has the notes of the
// row's cells and of all columns. A text that a spreadsheet would take for a formula gets an apostrophe before it.
std::string sheet_as_csv(const Sheet& sheet);
Record sheet_as_record(const Sheet& sheet);

std::string markdown_escaped(std::string_view text);
std::string csv_field(std::string_view text);

}  // namespace tessera
