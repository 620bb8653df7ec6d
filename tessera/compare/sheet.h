// A table of a report, and its forms: for a terminal, Markdown, CSV and JSON.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/report/console.h"
#include "tessera/report/record.h"

namespace tessera {

struct Cell {
  std::string text;                     // as shown, without the marks of notes
  std::vector<double> values{};         // empty: the cell has a text, or no value
  std::optional<double> low{}, high{};  // the lowest and the highest value of several runs
  std::vector<std::string> notes{};     // become footnotes
  bool is_number = false;               // for a number; if there is none, the CSV field is empty and JSON has null
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
};

// The notes of a sheet, each once: first those of columns, then those of cells. Note i has the mark mark_of(i).
std::vector<std::string> notes_of(const Sheet& sheet);
std::string mark_of(size_t index);  // a, b, ... z, aa, ab, ...
// "[a][c]": the marks of `notes`. `all`: notes_of() of the sheet.
std::string marks_of(const std::vector<std::string>& notes, const std::vector<std::string>& all);

std::string sheet_for_terminal(const Sheet& sheet, const Terminal& terminal);
std::string sheet_as_markdown(const Sheet& sheet);
// RFC 4180 with a header; the last column has the notes of the row. A text that a spreadsheet would take for a formula
// gets an apostrophe before it.
std::string sheet_as_csv(const Sheet& sheet);
Record sheet_as_record(const Sheet& sheet);

std::string markdown_escaped(std::string_view text);
std::string csv_field(std::string_view text);

}  // namespace tessera
