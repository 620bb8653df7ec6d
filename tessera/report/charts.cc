#include "tessera/report/charts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tessera/log/drawing.h"

namespace tessera {

namespace {

constexpr double kLeft = 52, kRight = 14, kTop = 12, kBottom = 38;
constexpr size_t kMostPoints = 240;  // of a curve: about one point for two pixels of a large chart

struct Axis {
  double low = 0, high = 1, from = 0, to = 1;  // the values `low` and `high` are at `from` and `to` in the picture
  double at(double value) const { return from + (value - low) / (high - low) * (to - from); }
};

void drop_non_finite(Curve& curve) {
  size_t kept = 0;
  for (size_t i = 0; i < std::min(curve.x.size(), curve.y.size()); ++i) {
    if (!std::isfinite(curve.x[i]) || !std::isfinite(curve.y[i])) continue;
    if (std::abs(curve.x[i]) > 1e100 || std::abs(curve.y[i]) > 1e100) continue;  // differences must stay finite
    curve.x[kept] = curve.x[i], curve.y[kept] = curve.y[i];
    ++kept;
  }
  curve.x.resize(kept), curve.y.resize(kept);
}

Axis axis_of(const std::vector<Curve>& curves, std::vector<double> Curve::*values, double from, double to) {
  Axis axis{std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity(), from, to};
  for (const Curve& curve : curves) {
    for (const double value : curve.*values)
      axis.low = std::min(axis.low, value), axis.high = std::max(axis.high, value);
  }
  return axis;
}

void widen(Axis& axis, bool from_zero) {
  if (from_zero) axis.low = std::min(axis.low, 0.0), axis.high = std::max(axis.high, 0.0);
  const double span = axis.high - axis.low;
  const double least = std::max(std::abs(axis.high), 1e-12) * 1e-6;
  if (span < least) {  // all values are about equal
    const double by = std::max(std::abs(axis.high) * 0.05, 1e-12);
    if (!from_zero || axis.low < 0) axis.low -= by;
    axis.high += by;
    return;
  }
  if (!from_zero) axis.low -= 0.04 * span;
  axis.high += 0.06 * span;
}

struct Size {
  double width, height;
};

std::string path_of(const Curve& curve, const Axis& x, const Axis& y) {
  std::string path;
  for (size_t i = 0; i < curve.x.size(); ++i) {
    path += fmt::format("{}{:.1f} {:.1f}", i == 0 ? "M" : "L", x.at(curve.x[i]), y.at(curve.y[i]));
  }
  return path;
}

std::string grid(const Axis& x, const Axis& y, const std::string& x_title, Size size) {
  std::string svg;
  for (const double value : ticks(y.low, y.high, 5)) {
    const double at = y.at(value);
    svg += fmt::format("<line class=\"{}\" x1=\"{:.0f}\" x2=\"{:.0f}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>",
                       value == 0 ? "axis" : "grid", kLeft, size.width - kRight, at, at);
    svg += fmt::format("<text class=\"tick\" x=\"{:.0f}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>", kLeft - 7,
                       at + 4, short_number(value));
  }
  for (const double value : ticks(x.low, x.high, 5)) {
    svg += fmt::format("<text class=\"tick\" x=\"{:.1f}\" y=\"{:.0f}\" text-anchor=\"middle\">{}</text>", x.at(value),
                       size.height - kBottom + 17, short_number(value));
  }
  svg += fmt::format("<line class=\"axis\" x1=\"{0:.0f}\" x2=\"{1:.0f}\" y1=\"{2:.0f}\" y2=\"{2:.0f}\"/>", kLeft,
                     size.width - kRight, size.height - kBottom);
  svg += fmt::format("<text class=\"tick\" x=\"{:.0f}\" y=\"{:.0f}\" text-anchor=\"middle\">{}</text>",
                     (kLeft + size.width - kRight) / 2, size.height - 3, html_escaped(x_title));
  return svg;
}

}  // namespace

std::string line_chart(std::vector<Curve> curves, const ChartOptions& options) {
  for (Curve& curve : curves) drop_non_finite(curve);
  std::erase_if(curves, [](const Curve& curve) { return curve.x.empty(); });
  if (curves.empty()) return "";
  const Size size = options.small ? Size{340, 210} : Size{480, 250};
  for (Curve& curve : curves) thin(curve.x, curve.y, kMostPoints);
  Axis x = axis_of(curves, &Curve::x, kLeft, size.width - kRight),
       y = axis_of(curves, &Curve::y, size.height - kBottom, kTop);
  widen(y, options.from_zero);
  if (x.high - x.low < 1e-9) x.low -= 0.5, x.high += 0.5;
  std::string svg = fmt::format(
      "<figure class=\"chart\"><figcaption>{0}</figcaption><svg viewBox=\"0 0 {1:.0f} {2:.0f}\" role=\"img\" "
      "aria-label=\"{0}\">",
      html_escaped(options.title), size.width, size.height);
  svg += grid(x, y, options.x_title, size);
  for (const Curve& curve : curves) {
    const std::string title =
        fmt::format("<title>{}: {} at the end</title>", html_escaped(curve.name), short_number(curve.y.back()));
    svg += fmt::format("<path class=\"line c{}\" d=\"{}\">{}</path>", curve.color % kNumColors, path_of(curve, x, y),
                       title);
    if (!options.markers && curve.x.size() > 1) continue;
    for (size_t i = 0; i < curve.x.size(); ++i) {
      svg += fmt::format("<circle class=\"dot c{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\"><title>{}: {}</title></circle>",
                         curve.color % kNumColors, x.at(curve.x[i]), y.at(curve.y[i]), html_escaped(curve.name),
                         short_number(curve.y[i]));
    }
  }
  return svg + "</svg></figure>\n";
}

}  // namespace tessera
