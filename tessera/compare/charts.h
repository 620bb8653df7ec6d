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
  std::vector<double> x, y;  // of equal length, x ascending; line_chart() omits points that are not finite
};

struct ChartOptions {
  std::string title, x_title;
  bool from_zero = false;  // the y axis begins at 0
  bool markers = false;    // few points, each with a dot
  bool small = false;      // for pages with many charts
};

// Text for HTML: escapes & < > " ', and replaces invalid UTF-8 and control characters.
std::string html_escaped(std::string_view text);

// Keeps at most `most` points of a curve. Always keeps the first and the last point. Divides the points between them
// into stretches of about equal numbers of points, and keeps the lowest and the highest point of each stretch. Keeps
// all points if `most` is below 4.
void thin(std::vector<double>& x, std::vector<double>& y, size_t most);

// Round numbers within [low, high], about `count` of them: steps of 1, 2 or 5 times a power of ten.
std::vector<double> ticks(double low, double high, int count);

std::string short_number(double value);  // "12", "0.05", "5e-05", "12k", "3.4M"

// A figure element, or an empty text if no curve has a point.
std::string line_chart(std::vector<Curve> curves, const ChartOptions& options);

}  // namespace tessera
