#include "tessera/compare/sheet.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>

#include "tessera/base/error.h"
#include "tessera/compare/words.h"
#include "tessera/report/table.h"

namespace tessera {

namespace {

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
  const std::vector<std::string> notes = notes_of(sheet);
  const auto with_marks = [&](const std::string& text, const std::vector<std::string>& of_cell) {
    return one_line(text) + (of_cell.empty() ? "" : " " + marks_of(of_cell, notes));
  };
  std::vector<Column> columns;
  for (const SheetColumn& column : sheet.columns) {
    columns.push_back({with_marks(column.title, column.notes), column.is_number ? Align::kRight : Align::kLeft});
  }
  Table table(columns);
  for (const auto& row : sheet.rows) {
    std::vector<std::string> cells;
    for (const Cell& cell : row) cells.push_back(with_marks(cell.text, cell.notes));
    table.row(cells);
  }
  std::string text = sheet.title.empty() ? "" : one_line(sheet.title) + "\n";
  text += table.render(terminal);
  for (const std::string& line : lines_below(sheet)) text += "\n" + line;
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
  for (const auto& row : sheet.rows) {
    text += "|";
    for (const Cell& cell : row) text += " " + cell_text(cell.text, cell.notes) + " |";
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
    text += line + "," + csv_field(join_words(notes, "; ")) + "\n";
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
  return {{"name", sheet.name},
          {"title", sheet.title},
          {"columns", std::move(columns)},
          {"rows", std::move(rows)},
          {"remarks", sheet.remarks}};
}

}  // namespace tessera
