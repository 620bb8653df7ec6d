#include "tessera/plan/memory_picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "tessera/base/text.h"
#include "tessera/log/drawing.h"

namespace tessera {
namespace {

constexpr double kWidth = 920, kLeft = 64, kRight = 640;  // the labels are on the right
constexpr double kDeviceTop = 96, kDeviceHeight = 300, kHostHeight = 170, kBetween = 74, kBelow = 46;
constexpr double kLabelHeight = 19;
constexpr size_t kMostPoints = 600;  // about one for each pixel

// The categories that have a colour of their own, from the lowest band to the highest. The other categories share the
// band below them.
constexpr std::array kColoured{Category::parameters,    Category::master,   Category::optimizer, Category::gradients,
                               Category::communication, Category::gathered, Category::staging,   Category::activations};
static_assert(kColoured.size() == kNumColors);

struct Band {
  std::string name, css;
  std::vector<int64_t> bytes;  // at each point
  int64_t most() const { return *std::ranges::max_element(bytes); }
};

using Points = std::vector<StepMemory::Point>;

// The bands of a ledger, from the lowest one. On the device, the activations are the part of the stack that is in use;
// the rest of the stack is the highest band.
std::vector<Band> bands_of(const Points& points, StepMemory::Bytes StepMemory::Point::*ledger, bool has_stack) {
  const auto bytes = [&](Category category) {
    std::vector<int64_t> values;
    for (const auto& point : points) values.push_back((point.*ledger)[static_cast<size_t>(category)]);
    return values;
  };
  std::vector<Band> bands;
  const auto add = [&](Band band) {
    if (band.most() > 0) bands.push_back(std::move(band));
  };
  Band other{"", "other", std::vector<int64_t>(points.size())};
  std::vector<std::string> names;
  for (int c = 0; c < kNumCategories; ++c) {
    if (std::ranges::find(kColoured, Category(c)) != kColoured.end()) continue;
    const std::vector<int64_t> values = bytes(Category(c));
    if (*std::ranges::max_element(values) > 0) names.emplace_back(name_of(Category(c)));
    for (size_t i = 0; i < values.size(); ++i) other.bytes[i] += values[i];
  }
  other.name = joined(names);
  add(std::move(other));
  for (size_t i = 0; i < kColoured.size(); ++i) {
    const std::string css = fmt::format("c{}", (i + 1) % kNumColors);  // the activations get the first colour
    Band band{name_of(kColoured[i]), css, bytes(kColoured[i])};
    if (kColoured[i] != Category::activations || !has_stack) {
      add(std::move(band));
      continue;
    }
    band.css += " stack";
    Band rest{"free for activations", css + " stack free", band.bytes};
    for (size_t p = 0; p < points.size(); ++p) {
      band.bytes[p] = points[p].stack_bytes;
      rest.bytes[p] -= points[p].stack_bytes;
    }
    add(std::move(band));
    add(std::move(rest));
  }
  return bands;
}

// At most kMostPoints points, with the lowest and the highest stack of each stretch. Of several points at about the
// same time, only the highest one and the last one are drawn.
Points thinned(const StepMemory& memory) {
  const Points& points = memory.points;
  const double same = memory.timed ? 5e-4 * memory.end : 0;  // less than a pixel
  std::vector<double> number, height;
  const auto keep = [&](size_t i) {
    number.push_back(static_cast<double>(i));
    height.push_back(static_cast<double>(points[i].stack_bytes));
  };
  for (size_t begin = 0, end = 0; begin < points.size(); begin = end) {
    size_t highest = begin;
    for (end = begin + 1; end < points.size() && points[end].at - points[begin].at < same; ++end) {
      if (points[end].stack_bytes > points[highest].stack_bytes) highest = end;
    }
    keep(highest);
    if (highest + 1 < end) keep(end - 1);
  }
  thin(number, height, kMostPoints);
  Points kept;
  for (const double i : number) kept.push_back(points[static_cast<size_t>(i)]);
  return kept;
}

struct Panel {
  std::string title;
  double top, height;
  std::vector<Band> bands;
  int64_t limit;  // 0: not known
};

class Picture {
 public:
  explicit Picture(const StepMemory& memory) : memory_(memory), points_(thinned(memory)) {}
  const Points& points() const { return points_; }
  const std::string& svg() const { return svg_; }

  void text(double x, double y, const std::string& text, const char* css = "", const char* anchor = "start") {
    svg_ += fmt::format("<text{} x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n",
                        *css ? fmt::format(" class=\"{}\"", css) : "", x, y, anchor, html_escaped(text));
  }

  void panel(const Panel& panel) {
    std::vector<std::vector<int64_t>> heights{std::vector<int64_t>(points_.size())};  // below and above each band
    for (const Band& band : panel.bands) {
      heights.push_back(heights.back());
      for (size_t i = 0; i < points_.size(); ++i) heights.back()[i] += band.bytes[i];
    }
    const int64_t peak = *std::ranges::max_element(heights.back());
    const bool shows_limit = panel.limit > 0 && panel.limit < 3 * peak;
    const double most = 1.06 * static_cast<double>(std::max(peak, shows_limit ? panel.limit : 0));
    const double bottom_above = std::exchange(bottom_, panel.top + panel.height);
    scale_ = panel.height / most;
    text(kLeft, panel.top - 26,
         fmt::format("{}: {}{}", panel.title, format_bytes(peak),
                     panel.limit > 0 ? fmt::format(", limit {}", format_bytes(panel.limit)) : ""),
         "head");
    axis(most);
    for (size_t b = 0; b < panel.bands.size(); ++b) band(panel.bands[b], heights[b], heights[b + 1]);
    parts(panel.top, bottom_above == 0);
    line("axis", kLeft, bottom_, kRight, bottom_);
    if (shows_limit) {
      const double at = y(panel.limit);
      line("limit", kLeft, at, kRight, at);
      text(kRight - 6, at - 5, "limit", "limit", "end");
    }
    labels(panel);
  }

  // The labels below the last panel.
  void time_axis() {
    if (!memory_.timed) {
      return text((kLeft + kRight) / 2, bottom_ + 34, "changes of the activations, in their order", "", "middle");
    }
    const double unit = memory_.end < 1 ? 1e-3 : 1;
    for (const double value : ticks(0, memory_.end / unit, 6)) {
      text(x(value * unit), bottom_ + 18, short_number(value), "", "middle");
    }
    text((kLeft + kRight) / 2, bottom_ + 38,
         fmt::format("{} since the step began, predicted", unit < 1 ? "milliseconds" : "seconds"), "", "middle");
  }

 private:
  double x(double at) const { return kLeft + (memory_.end > 0 ? at / memory_.end : 0) * (kRight - kLeft); }
  double y(int64_t bytes) const { return bottom_ - static_cast<double>(bytes) * scale_; }
  void line(const char* css, double x1, double y1, double x2, double y2) {
    svg_ += fmt::format("<path class=\"{}\" d=\"M{:.1f} {:.1f}L{:.1f} {:.1f}\"/>\n", css, x1, y1, x2, y2);
  }

  void axis(double most) {
    double unit = 1;
    while (most / unit >= 1024) unit *= 1024;
    for (const double value : ticks(0, most / unit, 5)) {
      const double at = bottom_ - value * unit * scale_;
      if (value > 0) line("grid", kLeft, at, kRight, at);
      text(kLeft - 8, at + 4, value > 0 ? format_bytes_in(value, unit) : "0", "", "end");
    }
  }
  static std::string format_bytes_in(double value, double unit) {
    const int power = static_cast<int>(std::lround(std::log2(unit) / 10));
    return short_number(value) + std::array{" B", " KiB", " MiB", " GiB", " TiB", " PiB"}[static_cast<size_t>(power)];
  }

  // A height holds until the next point.
  std::string outline(const std::vector<int64_t>& heights, bool backward) const {
    std::string path;
    const size_t n = heights.size();
    if (!backward) {
      path = fmt::format("M{:.1f} {:.1f}", x(points_[0].at), y(heights[0]));
      for (size_t i = 1; i < n; ++i) {
        if (heights[i] != heights[i - 1]) path += fmt::format("H{:.1f}V{:.1f}", x(points_[i].at), y(heights[i]));
      }
      return path + fmt::format("H{:.1f}", x(memory_.end));
    }
    path = fmt::format("V{:.1f}", y(heights[n - 1]));
    for (size_t i = n - 1; i > 0; --i) {
      if (heights[i] != heights[i - 1]) path += fmt::format("H{:.1f}V{:.1f}", x(points_[i].at), y(heights[i - 1]));
    }
    return path + fmt::format("H{:.1f}Z", x(points_[0].at));
  }

  void band(const Band& band, const std::vector<int64_t>& below, const std::vector<int64_t>& above) {
    svg_ += fmt::format("<path class=\"band {}\" d=\"{}{}\"><title>{}: {}</title></path>\n", band.css,
                        outline(above, false), outline(below, true), band.name, format_bytes(band.most()));
  }

  // Where forward, backward and update begin. Only the first panel has their names.
  void parts(double top, bool named) {
    for (size_t i = 0; i < memory_.parts.size(); ++i) {
      const double begin = x(memory_.parts[i].at);
      const double end = i + 1 < memory_.parts.size() ? x(memory_.parts[i + 1].at) : kRight;
      if (i > 0) line("part", begin, top, begin, bottom_);
      if (named && end - begin > 56) text((begin + end) / 2, top - 6, name_of(memory_.parts[i].part), "", "middle");
    }
  }

  // From the highest band to the lowest one.
  void labels(const Panel& panel) {
    const double all = kLabelHeight * static_cast<double>(panel.bands.size());
    double at = std::max(panel.top, panel.top + (panel.height - all) / 2) + 12;
    for (size_t b = panel.bands.size(); b-- > 0; at += kLabelHeight) {
      const Band& band = panel.bands[b];
      svg_ += fmt::format("<rect class=\"{}\" x=\"{:.0f}\" y=\"{:.1f}\" width=\"12\" height=\"12\" rx=\"3\"/>\n",
                          band.css, kRight + 20, at - 10);
      const bool is_held = !band.css.ends_with("free");
      text(kRight + 40, at, is_held ? fmt::format("{}  {}", band.name, format_bytes(band.most())) : band.name);
    }
  }

  const StepMemory& memory_;
  const Points points_;
  double bottom_ = 0, scale_ = 1;
  std::string svg_;
};

std::string style() {
  const auto colours = [](const Palette& palette) {
    std::string text;
    for (size_t i = 0; i < palette.size(); ++i) text += fmt::format(".c{}{{fill:{}}}", i, palette[i]);
    return text;
  };
  return "text{font-size:13px;fill:#52514e}.title{font-size:17px;font-weight:600;fill:#0b0b0b}"
         ".head{font-size:14px;font-weight:600;fill:#0b0b0b}.page{fill:#fcfcfb}.other{fill:#98978f}"
         ".band{stroke:#fcfcfb;stroke-width:.8}.stack{stroke:none}.free{fill-opacity:.25}.grid{stroke:#e3e2dd}.axis{"
         "stroke:#b9b8b1}"
         ".part{stroke:#52514e;stroke-opacity:.55;stroke-dasharray:2 4}"
         "path.limit{stroke:#0b0b0b;stroke-width:1.8;stroke-dasharray:8 4}text.limit{fill:#0b0b0b;font-weight:600}" +
         colours(kLightPalette) +
         "@media(prefers-color-scheme:dark){text{fill:#c3c2b7}.title,.head{fill:#fff}.page{fill:#1a1a19}"
         ".other{fill:#76756f}.band{stroke:#1a1a19}.stack{stroke:none}.grid{stroke:#2c2c2a}.axis{stroke:#4d4c48}.part{"
         "stroke:#c3c2b7}"
         "path.limit{stroke:#fff}text.limit{fill:#fff}" +
         colours(kDarkPalette) + "}";
}

}  // namespace

std::string memory_picture(const PlanReport& report) {
  const StepMemory& memory = *report.step_memory;
  const auto known = [](int64_t limit) { return limit == MemoryLimits{}.device_bytes ? 0 : limit; };
  const bool gpu = report.rank.device == DeviceKind::cuda;
  Picture picture(memory);
  std::vector<Band> host = bands_of(picture.points(), &StepMemory::Point::host, false);
  const bool holds_arrays = std::ranges::any_of(host, [](const Band& band) { return band.css != "other"; });
  if (!holds_arrays) host.clear();                             // nothing is offloaded
  const bool one = report.limits.one_memory && !host.empty();  // both panels share the limit
  const double host_top = kDeviceTop + kDeviceHeight + kBetween;
  const double height = (host.empty() ? kDeviceTop + kDeviceHeight : host_top + kHostHeight) + kBelow;

  const std::string title = fmt::format("Memory over a training step of {}", printable(report.settings.model));
  picture.text(kLeft, 28, title, "title");
  picture.text(kLeft, 48,
               fmt::format("{}{}{}", report.rank.world_size > 1 ? "Rank 0. " : "", summary_of(report.settings),
                           memory.timed ? fmt::format(". Times: {}", printable(report.machine->name)) : ""));
  picture.panel({gpu   ? "GPU"
                 : one ? "Device"
                       : "Memory",
                 kDeviceTop, kDeviceHeight, bands_of(picture.points(), &StepMemory::Point::device, true),
                 one ? 0 : known(report.limits.device_bytes)});
  if (!host.empty()) {
    picture.panel({"Host", host_top, kHostHeight, host, one ? 0 : known(report.limits.host_bytes)});
  }
  picture.time_axis();
  return fmt::format(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" role=\"img\" "
             "font-family=\"system-ui,-apple-system,'Segoe UI',Roboto,Helvetica,Arial,sans-serif\">\n"
             "<title>{2}</title>\n<style>{3}</style>\n<rect class=\"page\" width=\"{0:.0f}\" height=\"{1:.0f}\"/>\n",
             kWidth, height, html_escaped(title), style()) +
         picture.svg() + "</svg>\n";
}

}  // namespace tessera
