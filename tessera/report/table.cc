#include "tessera/report/table.h"

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/report/text.h"

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

std::string Table::render(const Terminal& terminal) const {
  std::vector<std::string> titles;
  std::vector<int> widths;
  for (const Column& column : columns_) {
    titles.push_back(column.title);
    widths.push_back(display_width(column.title));
  }
  for (const auto& cells : rows_) {
    for (size_t i = 0; i < cells.size(); ++i) widths[i] = std::max(widths[i], display_width(cells[i]));
  }

  const Border& border = terminal.unicode ? kUnicodeBorder : kAsciiBorder;
  const auto draw_row = [&](const std::vector<std::string>& cells) {
    std::string out = border.side;
    for (size_t i = 0; i < cells.size(); ++i) {
      const std::string padding(static_cast<size_t>(widths[i] - display_width(cells[i])), ' ');
      out += columns_[i].align == Align::kRight ? " " + padding + cells[i] : " " + cells[i] + padding;
      out += std::string(" ") + border.side;
    }
    return out + "\n";
  };
  std::string out = draw_rule(border.top, widths) + "\n";
  if (std::any_of(titles.begin(), titles.end(), [](const std::string& title) { return !title.empty(); })) {
    out += draw_row(titles) + draw_rule(border.middle, widths) + "\n";
  }
  for (const auto& cells : rows_) out += cells.empty() ? draw_rule(border.middle, widths) + "\n" : draw_row(cells);
  return out + draw_rule(border.bottom, widths);
}

}  // namespace tessera
