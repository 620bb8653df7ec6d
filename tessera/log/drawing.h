// What charts of every kind share: colours, the numbers of an axis, and text for HTML and SVG.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// The colours of data. Colour-blind readers can distinguish each colour from the next one, on the light and on the dark
// background.
inline constexpr size_t kNumColors = 8;
using Palette = std::array<const char*, kNumColors>;
inline constexpr Palette kLightPalette{"#2a78d6", "#eb6834", "#1baf7a", "#eda100",
                                       "#e87ba4", "#008300", "#4a3aa7", "#e34948"};
inline constexpr Palette kDarkPalette{"#3987e5", "#d95926", "#199e70", "#c98500",
                                      "#d55181", "#1f9a1f", "#9085e9", "#e66767"};

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

}  // namespace tessera
