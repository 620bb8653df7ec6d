#include "tessera/base/nf4.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "tessera/base/random.h"

namespace tessera {
namespace {

TEST(Nf4, TheMapOfScalesHasTheValuesOfItsDefinition) {
  const auto& map = nf4_scale_map();
  EXPECT_TRUE(std::ranges::is_sorted(map));
  EXPECT_EQ(std::ranges::adjacent_find(map), map.end());
  EXPECT_EQ(map.back(), 1.0f);
  EXPECT_EQ(map[kNf4ZeroScale], 0.0f);
  // In [0.1, 1] · 10⁻ⁱ lie 64, 32, …, 1 values, the middles of equal parts. Their negatives are in the map, too.
  double power = 1;
  for (int parts = 64; parts >= 1; parts /= 2, power /= 10) {
    for (int i = 0; i < parts; ++i) {
      const double middle = power * (0.1 + 0.9 * (i + 0.5) / parts);
      const auto nearest =
          std::ranges::min_element(map, {}, [&](float value) { return std::abs(static_cast<double>(value) - middle); });
      EXPECT_NEAR(static_cast<double>(*nearest), middle, 3e-7 * middle);
      EXPECT_TRUE(std::ranges::binary_search(map, -*nearest));
    }
  }
}

size_t nearest(const auto& values, double x) {
  const auto distance = [&](float value) { return std::abs(static_cast<double>(value) - x); };
  return static_cast<size_t>(std::ranges::min_element(values, {}, distance) - values.begin());
}

// Compares with a plain implementation of the definition in f64. A weight in the middle between two levels may get
// either.
TEST(Nf4, QuantizesToTheNearestValues) {
  ThreadPool pool(2);
  for (const int64_t n : {1, 63, 64, 65, 1000, 16383, 16384, 16385, 50000}) {
    SCOPED_TRACE(n);
    RandomStream random(static_cast<uint64_t>(n), 1);
    std::vector<float> weights(static_cast<size_t>(n));
    for (size_t i = 0; i < weights.size(); ++i) {
      const double scale = i / 64 % 7 == 3 ? 0 : 0.01 * static_cast<double>(1 + i / 64 % 5);  // with blocks of zeros
      weights[i] = static_cast<float>(scale * (random.next_uniform() * 2 - 1));
    }
    const ReadWeights read = [&](int64_t begin, int64_t end, float* values) {
      ASSERT_LE(end, n);
      std::copy(weights.begin() + begin, weights.begin() + end, values);
    };
    const int64_t num_groups = nf4_groups(n);
    std::vector<Nf4Group> groups(static_cast<size_t>(num_groups)), again(groups.size());
    Nf4Quantizer(pool).quantize("w", n, 0, num_groups, read, groups.data());
    // Groups that are quantized one by one, as ranks do, are the same.
    for (int64_t g = num_groups - 1; g >= 0; --g) {
      Nf4Quantizer(pool).quantize("w", n, g, g + 1, read, again.data() + g);
    }
    EXPECT_EQ(std::memcmp(groups.data(), again.data(), groups.size() * sizeof(Nf4Group)), 0);

    std::vector<double> scales;
    for (int64_t at = 0; at < n; at += 64) {
      double largest = 0;
      for (int64_t i = at; i < std::min(n, at + 64); ++i) {
        largest = std::max(largest, std::abs(static_cast<double>(weights[static_cast<size_t>(i)])));
      }
      scales.push_back(largest);
    }
    double mean = 0;
    for (const double scale : scales) mean += scale / static_cast<double>(scales.size());
    std::vector<float> values(weights.size());
    dequantize_nf4(groups.data(), 0, n, values.data());
    for (size_t b = 0; b < scales.size(); ++b) {
      const Nf4Group& group = groups[b / 256];
      double range = 0;
      for (size_t i = b / 256 * 256; i < std::min(scales.size(), b / 256 * 256 + 256); ++i) {
        range = std::max(range, std::abs(scales[i] - mean));
      }
      EXPECT_NEAR(static_cast<double>(group.scale_mean), mean, 1e-7 * mean);
      EXPECT_NEAR(static_cast<double>(group.scale_range), range, 1e-6 * mean);
      const auto& map = nf4_scale_map();
      const double wanted = range > 0 ? (scales[b] - mean) / range : 0;
      if (range > 1e-6 * mean) {
        const double got = static_cast<double>(map[group.scales[b % 256]]);
        EXPECT_LE(std::abs(got - wanted), std::abs(static_cast<double>(map[nearest(map, wanted)]) - wanted) + 1e-5)
            << b;
      }
      const double scale = static_cast<double>(map[group.scales[b % 256]] * group.scale_range + group.scale_mean);
      for (size_t i = 64 * b; i < std::min(weights.size(), 64 * b + 64); ++i) {
        const double x = scales[b] > 0 ? static_cast<double>(weights[i]) / scales[b] : 0;
        const uint8_t pair = group.codes[i % 16384 / 2];
        const size_t code = i % 2 == 0 ? pair >> 4 : pair & 15;
        const double best = std::abs(static_cast<double>(kNf4Levels[nearest(kNf4Levels, x)]) - x);
        EXPECT_LE(std::abs(static_cast<double>(kNf4Levels[code]) - x), best + 1e-6) << i;
        EXPECT_NEAR(static_cast<double>(values[i]), static_cast<double>(kNf4Levels[code]) * scale, 1e-6 * mean) << i;
      }
    }
    // Any part has the bits of the whole.
    for (int k = 0; k < 20; ++k) {
      const auto begin = static_cast<int64_t>(random.next_below(static_cast<uint64_t>(n)));
      const auto end = begin + 1 + static_cast<int64_t>(random.next_below(static_cast<uint64_t>(n - begin)));
      const int64_t first = begin / kNf4GroupWeights * kNf4GroupWeights;
      std::vector<float> part(static_cast<size_t>(end - begin));
      dequantize_nf4(groups.data() + begin / kNf4GroupWeights, begin - first, end - first, part.data());
      EXPECT_TRUE(std::equal(part.begin(), part.end(), values.begin() + begin));
    }
  }
}

}  // namespace
}  // namespace tessera
