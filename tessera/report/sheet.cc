#include "tessera/report/sheet.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <functional>

#include "tessera/base/error.h"
#include "tessera/base/text.h"
#include "tessera/log/table.h"

namespace tessera {

namespace {

constexpr const char* kBest = " (best)";  // after the name of the best run

std::string one_line(std::string_view text) {
  return printable(text, 4000);
}

void add_notes(const std::vector<std::string>& notes, std::vector<std::string>& all) {
  for (const std::string& note : notes) {
    if (std::find(all.begin(), all.end(), note) == all.end()) all.push_back(note);
  }
}

std::string plain_number(double value) {
  return std::isfinite(value) ? fmt::format("{}", value) : "";
}

// The lines below a table: the footnotes, then the remarks.
std::vector<std::string> lines_below(const Sheet& sheet) {
  std::vector<std::string> lines;
  const std::vector<std::string> notes = notes_of(sheet);
  for (size_t i = 0; i < notes.size(); ++i) lines.push_back(fmt::format("[{}] {}", mark_of(i), one_line(notes[i])));
  for (const std::string& remark : sheet.remarks) lines.push_back(one_line(remark));
  return lines;
}

// The texts of a sheet in columns, which become narrower until their table fits a terminal.
class NarrowTable {
 public:
  NarrowTable(const Sheet& sheet, const std::vector<std::string>& notes) {
    const auto with_marks = [&](const std::string& text, const std::vector<std::string>& of_cell) {
      return one_line(text) + (of_cell.empty() ? "" : " " + marks_of(of_cell, notes));
    };
    for (size_t c = 0; c < sheet.columns.size(); ++c) {
      const SheetColumn& column = sheet.columns[c];
      TextColumn texts{column.is_number ? Align::kRight : Align::kLeft, {with_marks(column.title, column.notes)}, 0};
      for (size_t r = 0; r < sheet.rows.size(); ++r) {
        const Cell& cell = sheet.rows[r][c];
        const char* best = c == 0 && sheet.best_row == r ? kBest : "";
        texts.cells.push_back(with_marks(cell.text + best, cell.notes));
      }
      texts.width = width_of(texts.cells);
      columns_.push_back(std::move(texts));
    }
  }

  // If the table has more than `most` columns of text: wraps the titles of numbers. If this is not enough, removes the
  // folders that all names begin with, then columns with equal cells, then narrows the remaining columns. Returns the
  // lines that say what was removed.
  std::vector<std::string> fit(int most) {
    wrap_titles(most);
    if (columns_[0].cells.size() < 3) {  // one row
      narrow(most);
      return {};
    }
    if (width(0, columns_.size()) <= most) return {};
    std::vector<std::string> removed;
    if (const std::string folder = remove_folder(); !folder.empty())
      removed.push_back("All names begin with " + folder);
    std::string same;
    for (size_t c = 1; c < columns_.size() && width(0, columns_.size()) > most;) {
      const auto& cells = columns_[c].cells;
      if (std::adjacent_find(cells.begin() + 1, cells.end(), std::not_equal_to<>()) != cells.end()) {
        ++c;
        continue;
      }
      same += (same.empty() ? "Same in all rows: " : ", ") + cells[0] + " " + cells[1];
      columns_.erase(columns_.begin() + static_cast<std::ptrdiff_t>(c));
    }
    if (!same.empty()) removed.push_back(same);
    narrow(most);
    return removed;
  }

  // One table, or several if the table is wider than `most`. Each table begins with the first column.
  std::vector<Table> parts(int most) const {
    std::vector<Table> tables;
    for (size_t begin = 1; begin < columns_.size() || tables.empty();) {
      size_t end = std::min(begin + 1, columns_.size());
      while (end < columns_.size() && width(0, 1) + width(begin, end + 1) - 1 <= most) ++end;
      std::vector<const TextColumn*> shown{&columns_[0]};
      for (size_t c = begin; c < end; ++c) shown.push_back(&columns_[c]);
      const auto lines_of = [](const TextColumn& column, size_t i) {
        return joined(wrapped(column.cells[i], column.width), "\n");
      };
      std::vector<Column> columns;
      for (const TextColumn* column : shown) columns.push_back({lines_of(*column, 0), column->align});
      Table table(columns);
      for (size_t r = 1; r < columns_[0].cells.size(); ++r) {
        std::vector<std::string> cells;
        for (const TextColumn* column : shown) cells.push_back(lines_of(*column, r));
        table.row(cells);
      }
      tables.push_back(std::move(table));
      begin = end;
    }
    return tables;
  }

 private:
  struct TextColumn {
    Align align;
    std::vector<std::string> cells;  // the title, then the rows
    int width;
  };

  static int width_of(const std::vector<std::string>& cells) {
    int widest = 0;
    for (const std::string& text : cells) widest = std::max(widest, display_width(text));
    return widest;
  }

  // Removes the start that the cells of the first column have in common, up to the last slash. Returns it.
  std::string remove_folder() {
    auto& names = columns_[0].cells;
    std::string folder = names[1].substr(0, names[1].rfind('/') + 1);
    for (size_t r = 2; r < names.size(); ++r) {
      while (!folder.empty() && !names[r].starts_with(folder)) {
        const size_t slash = folder.size() < 2 ? std::string::npos : folder.rfind('/', folder.size() - 2);
        folder.resize(slash == std::string::npos ? 0 : slash + 1);
      }
    }
    for (size_t r = 1; r < names.size(); ++r) names[r].erase(0, folder.size());
    columns_[0].width = width_of(names);
    return folder;
  }

  void wrap_titles(int most) {
    for (TextColumn& column : columns_) {
      if (column.align == Align::kLeft || width(0, columns_.size()) <= most) continue;
      column.width = std::max(least({column.align, {column.cells[0]}, 0}),
                              width_of({column.cells.begin() + 1, column.cells.end()}));
    }
  }

  // Wraps the widest column, again and again.
  void narrow(int most) {
    while (width(0, columns_.size()) > most) {
      TextColumn* widest = nullptr;
      for (TextColumn& column : columns_) {
        if (column.width > least(column) && (!widest || column.width > widest->width)) widest = &column;
      }
      if (!widest) break;
      --widest->width;
    }
  }

  // The columns of text that a table of the columns [begin, end) takes.
  int width(size_t begin, size_t end) const {
    int sum = 1;
    for (size_t c = begin; c < end; ++c) sum += columns_[c].width + 3;
    return sum;
  }

  // The least width is the length of the longest word. A word of a column of text may be divided.
  static int least(const TextColumn& column) {
    constexpr int kLeastText = 16;
    int longest = 1;
    for (const std::string& cell : column.cells) {
      for (size_t begin = 0; begin <= cell.size();) {
        const size_t end = std::min(cell.find(' ', begin), cell.size());
        longest = std::max(longest, display_width(std::string_view(cell).substr(begin, end - begin)));
        begin = end + 1;
      }
    }
    return column.align == Align::kLeft ? std::min(longest, kLeastText) : longest;
  }

  std::vector<TextColumn> columns_;
};

}  // namespace

std::vector<std::string> notes_of(const Sheet& sheet) {
  std::vector<std::string> all;
  for (const SheetColumn& column : sheet.columns) add_notes(column.notes, all);
  for (const auto& row : sheet.rows) {
    for (const Cell& cell : row) add_notes(cell.notes, all);
  }
  return all;
}

std::string mark_of(size_t index) {
  std::string mark;
  for (++index; index > 0; index = (index - 1) / 26)
    mark.insert(mark.begin(), static_cast<char>('a' + (index - 1) % 26));
  return mark;
}

std::string marks_of(const std::vector<std::string>& notes, const std::vector<std::string>& all) {
  std::string marks;
  for (size_t i = 0; i < all.size(); ++i) {
    if (std::find(notes.begin(), notes.end(), all[i]) != notes.end()) marks += "[" + mark_of(i) + "]";
  }
  return marks;
}

std::string sheet_for_terminal(const Sheet& sheet, const Terminal& terminal) {
  std::string text;
  const auto add_wrapped = [&](const std::string& line) {
    for (const std::string& piece : wrapped(line, kSheetColumns)) text += (text.empty() ? "" : "\n") + piece;
  };
  if (!sheet.title.empty()) add_wrapped(one_line(sheet.title));
  NarrowTable table(sheet, notes_of(sheet));
  const std::vector<std::string> removed = table.fit(kSheetColumns);
  for (const Table& part : table.parts(kSheetColumns)) text += (text.empty() ? "" : "\n") + part.render(terminal);
  for (const std::string& line : removed) add_wrapped(line);
  for (const std::string& line : lines_below(sheet)) add_wrapped(line);
  return text;
}

std::string markdown_escaped(std::string_view text) {
  std::string escaped;
  for (const char c : one_line(text)) {
    if (std::string_view("\\`*_[]<>|#~").find(c) != std::string_view::npos) escaped += '\\';
    escaped += c;
  }
  return escaped;
}

std::string sheet_as_markdown(const Sheet& sheet) {
  const std::vector<std::string> notes = notes_of(sheet);
  const auto cell_text = [&](const std::string& text, const std::vector<std::string>& of_cell) {
    const std::string marks = of_cell.empty() ? "" : " " + marks_of(of_cell, notes);
    return markdown_escaped(text + marks);
  };
  std::string text = sheet.title.empty() ? "" : fmt::format("### {}\n\n", markdown_escaped(sheet.title));
  std::string rule = "|";
  text += "|";
  for (const SheetColumn& column : sheet.columns) {
    text += " " + cell_text(column.title, column.notes) + " |";
    rule += column.is_number ? "---:|" : "---|";
  }
  text += "\n" + rule + "\n";
  for (size_t r = 0; r < sheet.rows.size(); ++r) {
    text += "|";
    for (size_t c = 0; c < sheet.rows[r].size(); ++c) {
      const Cell& cell = sheet.rows[r][c];
      const bool is_best = c == 0 && sheet.best_row == r;
      text += is_best ? " **" + markdown_escaped(cell.text) + "**" + cell_text(kBest, cell.notes) + " |"
                      : " " + cell_text(cell.text, cell.notes) + " |";
    }
    text += "\n";
  }
  const std::vector<std::string> below = lines_below(sheet);
  if (!below.empty()) text += "\n";
  for (const std::string& line : below) text += "- " + markdown_escaped(line) + "\n";
  text.pop_back();
  return text;
}

std::string csv_field(std::string_view text) {
  std::string field(text);
  const bool is_formula = !field.empty() && std::string_view("=+-@\t\r").find(field[0]) != std::string_view::npos;
  if (is_formula && field != "-") field.insert(field.begin(), '\'');
  if (field.find_first_of(",\"\n\r") == field.npos) return field;
  std::string quoted = "\"";
  for (const char c : field) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

std::string sheet_as_csv(const Sheet& sheet) {
  const auto add = [](std::string& line, const std::string& field) { line += (line.empty() ? "" : ",") + field; };
  std::vector<bool> spreads(sheet.columns.size());
  for (const auto& row : sheet.rows) {
    for (size_t i = 0; i < row.size(); ++i) spreads[i] = spreads[i] || row[i].low;
  }
  std::string text = "table";
  for (size_t i = 0; i < sheet.columns.size(); ++i) {
    add(text, csv_field(sheet.columns[i].name));
    if (spreads[i])
      add(text, csv_field(sheet.columns[i].name + "_low") + "," + csv_field(sheet.columns[i].name + "_high"));
  }
  text += ",notes\n";
  for (const auto& row : sheet.rows) {
    std::string line = csv_field(sheet.name);
    std::vector<std::string> notes;
    for (size_t i = 0; i < row.size(); ++i) {
      const Cell& cell = row[i];
      std::string field = cell.values.size() == 1 ? plain_number(cell.values[0]) : csv_field(cell.text);
      if (cell.is_number && cell.values.empty()) field = "";
      add(line, field);
      if (spreads[i])
        add(line, (cell.low ? plain_number(*cell.low) : "") + "," + (cell.high ? plain_number(*cell.high) : ""));
      add_notes(cell.notes, notes);
      add_notes(sheet.columns[i].notes, notes);
    }
    text += line + "," + csv_field(joined(notes, "; ")) + "\n";
  }
  text.pop_back();
  return text;
}

Record sheet_as_record(const Sheet& sheet) {
  std::vector<Record> columns, rows;
  for (const SheetColumn& column : sheet.columns) {
    Record record{{"name", column.name}, {"title", column.title}};
    if (!column.notes.empty()) record["notes"] = column.notes;
    columns.emplace_back(record);
  }
  for (const auto& row : sheet.rows) {
    Record record = Record::object();
    for (size_t i = 0; i < row.size(); ++i) {
      const Cell& cell = row[i];
      Record value = cell.is_number ? Record(nullptr) : Record(cell.text);
      if (cell.values.size() == 1) value = cell.values[0];
      if (cell.values.size() > 1) value = cell.values;
      if (cell.low) value = Record{{"median", value}, {"low", *cell.low}, {"high", *cell.high}};
      if (!cell.notes.empty()) value = Record{{"value", value}, {"notes", cell.notes}};
      record[sheet.columns[i].name] = value;
    }
    rows.emplace_back(record);
  }
  Record record{{"name", sheet.name},
                {"title", sheet.title},
                {"columns", std::move(columns)},
                {"rows", std::move(rows)},
                {"remarks", sheet.remarks}};
  if (sheet.best_row) record["best_row"] = *sheet.best_row;
  return record;
}

}  // namespace tessera
