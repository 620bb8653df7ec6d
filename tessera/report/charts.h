// Line charts as inline SVG. Colours and fonts come from the page's style.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tessera {

inline constexpr size_t kNumColors = 8;  // the page's style has the classes c0 to c7

struct Curve {
  std::string name;
  size_t color = 0;
  std::vector<double> x, y;  // equally long, x ascending; line_chart() omits points with NaN, infinite or huge values
};

struct ChartOptions {
  std::string title, x_title;
  bool from_zero = false;  // the y axis begins at 0
  bool markers = false;    // draws a dot at each point; for curves with few points
  bool small = false;      // for pages with many charts
};

// Text for HTML: escapes & < > " ', and replaces invalid UTF-8 and control characters.
std::string html_escaped(std::string_view text);

// Keeps at most `most` points of a curve. Always keeps the first and the last point. Divides all other points into
// stretches with about the same number of points, and keeps the lowest and the highest point of each stretch. Keeps
// all points if `most` is below 4.
void thin(std::vector<double>& x, std::vector<double>& y, size_t most);

// The numbers to show on an axis from `low` to `high`: about `count` multiples of a step. The step is 1, 2 or 5 times a
// power of ten.
std::vector<double> ticks(double low, double high, int count);

std::string short_number(double value);  // "12", "0.05", "5e-05", "12k", "3.4M"

// An HTML figure element, or an empty text if no curve has a point.
std::string line_chart(std::vector<Curve> curves, const ChartOptions& options);

}  // namespace tessera
