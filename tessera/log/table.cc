#include "tessera/log/table.h"

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/base/text.h"

namespace tessera {
namespace {

struct Line {
  const char *left, *fill, *cross, *right;
};
struct Border {
  Line top, middle, bottom;
  const char* side;
};
constexpr Border kUnicodeBorder{{"╭", "─", "┬", "╮"}, {"├", "─", "┼", "┤"}, {"╰", "─", "┴", "╯"}, "│"};
constexpr Border kAsciiBorder{{"+", "-", "+", "+"}, {"+", "-", "+", "+"}, {"+", "-", "+", "+"}, "|"};

std::vector<std::string> lines_of(const std::string& cell) {
  std::vector<std::string> lines;
  for (size_t begin = 0; begin <= cell.size();) {
    const size_t end = std::min(cell.find('\n', begin), cell.size());
    lines.push_back(cell.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

std::string draw_rule(const Line& line, const std::vector<int>& widths) {
  std::string out = line.left;
  for (size_t i = 0; i < widths.size(); ++i) {
    if (i > 0) out += line.cross;
    for (int column = 0; column < widths[i] + 2; ++column) out += line.fill;
  }
  return out + line.right;
}

}  // namespace

Table& Table::row(std::vector<std::string> cells) {
  TESSERA_ASSERT(cells.size() == columns_.size());
  rows_.push_back(std::move(cells));
  return *this;
}

Table& Table::rule() {
  rows_.emplace_back();
  return *this;
}

Table& Table::remove_empty_columns() {
  for (size_t i = columns_.size(); i-- > 0;) {
    const bool is_empty = std::ranges::all_of(
        rows_, [&](const auto& cells) { return cells.empty() || cells[i].empty() || cells[i] == "-"; });
    if (!is_empty) continue;
    columns_.erase(columns_.begin() + static_cast<std::ptrdiff_t>(i));
    for (auto& cells : rows_) {
      if (!cells.empty()) cells.erase(cells.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  return *this;
}

std::string Table::render(const Terminal& terminal) const {
  std::vector<std::string> titles;
  std::vector<int> widths;
  for (const Column& column : columns_) {
    titles.push_back(column.title);
    widths.push_back(0);
  }
  const auto widen = [&](const std::vector<std::string>& cells) {
    for (size_t i = 0; i < cells.size(); ++i) {
      for (const std::string& line : lines_of(cells[i])) widths[i] = std::max(widths[i], display_width(line));
    }
  };
  widen(titles);
  for (const auto& cells : rows_) widen(cells);

  const Border& border = terminal.unicode ? kUnicodeBorder : kAsciiBorder;
  const auto draw_row = [&](const std::vector<std::string>& cells) {
    std::vector<std::vector<std::string>> lines;
    size_t height = 0;
    for (const std::string& cell : cells) {
      lines.push_back(lines_of(cell));
      height = std::max(height, lines.back().size());
    }
    std::string out;
    for (size_t k = 0; k < height; ++k) {
      out += border.side;
      for (size_t i = 0; i < cells.size(); ++i) {
        const std::string text = k < lines[i].size() ? lines[i][k] : "";
        const std::string padding(static_cast<size_t>(widths[i] - display_width(text)), ' ');
        out += columns_[i].align == Align::kRight ? " " + padding + text : " " + text + padding;
        out += std::string(" ") + border.side;
      }
      out += "\n";
    }
    return out;
  };
  std::string out = draw_rule(border.top, widths) + "\n";
  if (std::any_of(titles.begin(), titles.end(), [](const std::string& title) { return !title.empty(); })) {
    out += draw_row(titles) + draw_rule(border.middle, widths) + "\n";
  }
  for (const auto& cells : rows_) out += cells.empty() ? draw_rule(border.middle, widths) + "\n" : draw_row(cells);
  return out + draw_rule(border.bottom, widths);
}

}  // namespace tessera
