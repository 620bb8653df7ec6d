// Line charts as inline SVG. Colours and fonts come from the page's style.
#pragma once

#include <string>
#include <vector>

#include "tessera/log/drawing.h"

namespace tessera {

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

// An HTML figure element, or an empty text if no curve has a point.
std::string line_chart(std::vector<Curve> curves, const ChartOptions& options);

}  // namespace tessera
