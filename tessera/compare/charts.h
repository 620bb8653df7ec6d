// Line charts as inline SVG. Colours and fonts come from the page's style.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tessera {

inline constexpr size_t kNumColors = 8;  // classes c0 ... c7 of the page's style

struct Curve {
  std::string name;
  size_t color = 0;
  std::vector<double> x, y;  // of equal lengths, x ascending; points that are not finite are left out
};

struct ChartOptions {
  std::string title, x_title;
  bool from_zero = false;  // the y axis begins at 0
  bool markers = false;    // few points, each with a dot
  bool small = false;      // one of many
};

// Text for HTML: & < > " ' escaped, invalid UTF-8 and control characters replaced.
std::string html_escaped(std::string_view text);

// Keeps at most `most` points, including the first and the last: the lowest and the highest value of each stretch.
void thin(std::vector<double>& x, std::vector<double>& y, size_t most);

// Round numbers within [low, high], about `count` of them: steps of 1, 2 or 5 times a power of ten.
std::vector<double> ticks(double low, double high, int count);

std::string short_number(double value);  // "12", "0.05", "5e-05", "1.2k", "3.4M"

// A figure element, or an empty text if no curve has a point.
std::string line_chart(std::vector<Curve> curves, const ChartOptions& options);

}  // namespace tessera
