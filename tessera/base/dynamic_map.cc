#include "tessera/base/dynamic_map.h"

#include <algorithm>
#include <cmath>

namespace tessera {

namespace {

// For each power of ten from 10⁻⁶ to 1, the middles of equal parts of [0.1, 1]. Each power has twice as many parts as
// the one before. Computed in f32 in the order of the original, so that the values have its bits.
std::array<float, 256> make_map(bool is_signed) {
  std::array<float, 256> map{};
  size_t count = 0;
  constexpr float kPowers[] = {1e-6f, 1e-5f, 1e-4f, 1e-3f, 1e-2f, 1e-1f, 1.0f};
  for (int i = 0; i < 7; ++i) {
    const int parts = is_signed ? 1 << i : 2 << i;
    const float step = (1.0f - 0.1f) / static_cast<float>(parts);
    // Like torch.linspace on processors with FMA. The second half is counted from the end.
    const auto boundary = [&](int k) {
      return k < (parts + 1) / 2 ? std::fma(step, static_cast<float>(k), 0.1f)
                                 : std::fma(-step, static_cast<float>(parts - k), 1.0f);
    };
    for (int k = 0; k < parts; ++k) {
      const float value = kPowers[i] * ((boundary(k) + boundary(k + 1)) / 2);
      map[count++] = value;
      if (is_signed) map[count++] = -value;
    }
  }
  map[count++] = 0;
  map[count++] = 1;
  std::ranges::sort(map);
  return map;
}

}  // namespace

const std::array<float, 256>& dynamic_map(bool is_signed) {
  static const std::array<float, 256> kSigned = make_map(true), kUnsigned = make_map(false);
  return is_signed ? kSigned : kUnsigned;
}

}  // namespace tessera
