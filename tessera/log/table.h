// Small tables for human readers.
#pragma once

#include <string>
#include <vector>

#include "tessera/log/console.h"

namespace tessera {

enum class Align { kLeft, kRight };  // kRight is for numbers

struct Column {
  std::string title;  // if no column has a title, the table has no header
  Align align = Align::kLeft;
};

class Table {
 public:
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // Adds one row, with as many cells as columns. A cell may have several lines.
  Table& row(std::vector<std::string> cells);
  // Adds a horizontal rule between the previous row and the next one.
  Table& rule();

  // Removes the columns without values: all their cells are empty or "-".
  Table& remove_empty_columns();

  // Returns the table, without a newline at the end. Frames use Unicode if the terminal supports it, else ASCII.
  //   ╭──────────┬─────────╮      +----------+---------+
  //   │ strategy │  memory │      | strategy |  memory |
  //   ├──────────┼─────────┤      +----------+---------+
  //   │ zero3    │ 1.2 GiB │      | zero3    | 1.2 GiB |
  //   ╰──────────┴─────────╯      +----------+---------+
  std::string render(const Terminal& terminal) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;  // a row without cells is a rule
};

}  // namespace tessera
