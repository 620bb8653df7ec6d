// Small tables for people.
#pragma once

#include <string>
#include <vector>

#include "tessera/report/console.h"

namespace tessera {

enum class Align { kLeft, kRight };  // numbers to the right

struct Column {
  std::string title;  // when no column has one, the table has no head
  Align align = Align::kLeft;
};

class Table {
 public:
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // One row; as many cells as columns, each on one line.
  Table& row(std::vector<std::string> cells);
  // A line between the rows before and after.
  Table& rule();

  // The table, with frames drawn where the terminal knows Unicode and in ASCII elsewhere; no newline at the end.
  //   ╭──────────┬─────────╮      +----------+---------+
  //   │ strategy │  memory │      | strategy |  memory |
  //   ├──────────┼─────────┤      +----------+---------+
  //   │ zero3    │ 1.2 GiB │      | zero3    | 1.2 GiB |
  //   ╰──────────┴─────────╯      +----------+---------+
  std::string render(const Terminal& terminal) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;  // one without cells is a rule
};

}  // namespace tessera
