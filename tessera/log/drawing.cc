#include "tessera/log/drawing.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "tessera/base/record.h"

namespace tessera {

std::string html_escaped(std::string_view text) {
  // JSON's writer replaces bytes that are not UTF-8.
  const std::string json = to_json({{"t", std::string(text)}});
  const Record clean = record_from_json(json, "text");
  std::string escaped;
  for (const char c : clean.at("t").get<std::string>()) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      case '\'':
        escaped += "&#39;";
        break;
      default:
        escaped += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
    }
  }
  return escaped;
}

void thin(std::vector<double>& x, std::vector<double>& y, size_t most) {
  const size_t size = x.size();
  if (size <= most || most < 4) return;
  const size_t num_stretches = (most - 2) / 2;
  std::vector<size_t> kept{0};
  for (size_t s = 0; s < num_stretches; ++s) {
    const size_t begin = 1 + s * (size - 2) / num_stretches, end = 1 + (s + 1) * (size - 2) / num_stretches;
    size_t low = begin, high = begin;
    for (size_t i = begin; i < end; ++i) {
      if (y[i] < y[low]) low = i;
      if (y[i] > y[high]) high = i;
    }
    kept.push_back(std::min(low, high));
    if (low != high) kept.push_back(std::max(low, high));
  }
  kept.push_back(size - 1);
  for (size_t i = 0; i < kept.size(); ++i) x[i] = x[kept[i]], y[i] = y[kept[i]];
  x.resize(kept.size()), y.resize(kept.size());
}

std::vector<double> ticks(double low, double high, int count) {
  if (!(high > low) || !std::isfinite(high - low)) return {};
  const double raw = (high - low) / count, power = std::pow(10.0, std::floor(std::log10(raw)));
  double step = 10 * power;
  for (const double factor : {5.0, 2.0, 1.0}) {
    if (factor * power >= raw * 0.999) step = factor * power;
  }
  std::vector<double> values;
  for (double k = std::ceil(low / step - 1e-9); k * step <= high + 1e-9 * step && values.size() < 50; ++k) {
    values.push_back(k == 0 ? 0.0 : k * step);
  }
  return values;
}

std::string short_number(double value) {
  const double size = std::abs(value);
  if (size >= 1e9) return fmt::format("{:.3g}G", value / 1e9);
  if (size >= 1e6) return fmt::format("{:.3g}M", value / 1e6);
  if (size >= 1e4) return fmt::format("{:.3g}k", value / 1e3);
  return fmt::format("{:.4g}", value);
}

}  // namespace tessera
