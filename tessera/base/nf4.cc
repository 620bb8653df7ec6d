#include "tessera/base/nf4.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace tessera {

namespace {

constexpr int64_t kChunkGroups = 64;
constexpr float kLeastScale = 1e-38f;  // divides instead of a scale of 0

// For each power of ten from 10⁻⁶ to 1, the middles of equal parts of [0.1, 1] and their negatives. Each power has
// twice as many parts as the one before. Computed in f32 in the order of the original, so that the values have its
// bits.
std::array<float, 256> make_scale_map() {
  std::array<float, 256> map{};
  size_t count = 0;
  constexpr float kPowers[] = {1e-6f, 1e-5f, 1e-4f, 1e-3f, 1e-2f, 1e-1f, 1.0f};
  for (int i = 0; i < 7; ++i) {
    const int parts = 1 << i;
    const float step = (1.0f - 0.1f) / static_cast<float>(parts);
    // Like torch.linspace on processors with FMA. The second half is counted from the end.
    const auto boundary = [&](int k) {
      return k < (parts + 1) / 2 ? std::fma(step, static_cast<float>(k), 0.1f)
                                 : std::fma(-step, static_cast<float>(parts - k), 1.0f);
    };
    for (int k = 0; k < parts; ++k) {
      const float value = kPowers[i] * ((boundary(k) + boundary(k + 1)) / 2);
      map[count++] = value;
      map[count++] = -value;
    }
  }
  map[count++] = 0;
  map[count++] = 1;
  std::ranges::sort(map);
  return map;
}

template <size_t N>
std::array<float, N - 1> middles_of(const std::array<float, N>& values) {
  std::array<float, N - 1> middles;
  for (size_t i = 0; i + 1 < N; ++i) middles[i] = (values[i] + values[i + 1]) / 2;
  return middles;
}

// The code of the nearest value: the number of middles below x.
template <size_t N>
uint8_t nearest(const std::array<float, N>& middles, float x) {
  return static_cast<uint8_t>(std::ranges::lower_bound(middles, x) - middles.begin());
}
uint8_t nearest_level(const std::array<float, 15>& middles, float x) {
  int code = 0;
  for (const float middle : middles) code += middle < x ? 1 : 0;  // vectorizes
  return static_cast<uint8_t>(code);
}

float largest_magnitude(const float* values, int64_t count) {
  float largest = 0;
  for (int64_t i = 0; i < count; ++i) largest = std::max(largest, std::abs(values[i]));
  return largest;
}

// x / largest as bitsandbytes computes it: a complete block is multiplied by the inverse.
void normalize(float* values, int64_t count, int64_t complete, float largest) {
  const float least = std::max(largest, kLeastScale), inverse = 1.0f / least;
  for (int64_t i = 0; i < count; ++i) {
    values[i] = std::clamp(count == complete ? values[i] * inverse : values[i] / least, -1.0f, 1.0f);
  }
}

// Calls body(group, weights, count) for the groups [first, last) of a tensor in parallel.
template <typename Body>
void for_groups(int64_t num_weights, int64_t first, int64_t last, const ReadWeights& read, ThreadPool& pool,
                const Body& body) {
  const int64_t most = std::min(kChunkGroups, last - first) * kNf4GroupWeights;
  std::vector<float> weights(static_cast<size_t>(std::max<int64_t>(0, most)));
  for (int64_t at = first; at < last; at += kChunkGroups) {
    const int64_t groups = std::min(kChunkGroups, last - at);
    const int64_t begin = at * kNf4GroupWeights, end = std::min(num_weights, (at + groups) * kNf4GroupWeights);
    read(begin, end, weights.data());
    pool.run(groups, [&](int64_t i) {
      const int64_t offset = i * kNf4GroupWeights;
      body(at + i, weights.data() + offset, std::min(kNf4GroupWeights, end - begin - offset));
    });
  }
}

void quantize_group(float* weights, int64_t count, float mean, Nf4Group& group) {
  static const std::array<float, 15> kLevelMiddles = middles_of(kNf4Levels);
  static const std::array<float, 255> kMapMiddles = middles_of(nf4_scale_map());
  group = {};
  std::array<uint8_t, kNf4GroupWeights> codes;
  codes.fill(kNf4ZeroPair & 15);
  group.scales.fill(kNf4ZeroScale);
  std::array<float, kNf4GroupBlocks> scales{};
  int64_t blocks = 0;
  for (int64_t at = 0; at < count; at += kNf4BlockWeights, ++blocks) {
    const int64_t n = std::min(kNf4BlockWeights, count - at);
    float* const block = weights + at;
    const float scale = largest_magnitude(block, n);
    normalize(block, n, kNf4BlockWeights, scale);
    for (int64_t i = 0; i < n; ++i) codes[static_cast<size_t>(at + i)] = nearest_level(kLevelMiddles, block[i]);
    scales[static_cast<size_t>(blocks)] = (n < kNf4BlockWeights ? std::max(scale, kLeastScale) : scale) - mean;
  }
  for (size_t i = 0; i < group.codes.size(); ++i) {
    group.codes[i] = static_cast<uint8_t>(codes[2 * i] << 4 | codes[2 * i + 1]);
  }
  group.scale_mean = mean;
  group.scale_range = largest_magnitude(scales.data(), blocks);
  normalize(scales.data(), blocks, kNf4GroupBlocks, group.scale_range);
  for (int64_t b = 0; b < blocks; ++b) {
    group.scales[static_cast<size_t>(b)] = nearest(kMapMiddles, scales[static_cast<size_t>(b)]);
  }
}

float scale_mean(int64_t num_weights, const ReadWeights& read, ThreadPool& pool) {
  const int64_t groups = nf4_groups(num_weights);
  std::vector<double> sums(static_cast<size_t>(groups));
  for_groups(num_weights, 0, groups, read, pool, [&](int64_t group, const float* weights, int64_t count) {
    double sum = 0;
    for (int64_t at = 0; at < count; at += kNf4BlockWeights) {
      sum += static_cast<double>(largest_magnitude(weights + at, std::min(kNf4BlockWeights, count - at)));
    }
    sums[static_cast<size_t>(group)] = sum;
  });
  double sum = 0;
  for (const double one : sums) sum += one;
  return static_cast<float>(sum / static_cast<double>(ceil_divide(num_weights, kNf4BlockWeights)));
}

}  // namespace

const std::array<float, 256>& nf4_scale_map() {
  static const std::array<float, 256> kMap = make_scale_map();
  return kMap;
}

void Nf4Quantizer::quantize(const std::string& name, int64_t num_weights, int64_t first, int64_t last,
                            const ReadWeights& read, Nf4Group* groups) {
  if (!means_.contains(name)) means_[name] = scale_mean(num_weights, read, pool_);
  const float mean = means_[name];
  for_groups(num_weights, first, last, read, pool_, [&](int64_t group, float* weights, int64_t count) {
    quantize_group(weights, count, mean, groups[group - first]);
  });
}

void dequantize_nf4(const Nf4Group* groups, int64_t begin, int64_t end, float* values) {
  const std::array<float, 256>& map = nf4_scale_map();
  for (int64_t at = begin; at < end;) {
    const Nf4Group& group = groups[at / kNf4GroupWeights];
    const int64_t first = at % kNf4GroupWeights, block = first / kNf4BlockWeights;
    const int64_t stop = std::min(end - at, (block + 1) * kNf4BlockWeights - first);
    const float ranged = map[group.scales[static_cast<size_t>(block)]] * group.scale_range;
    const float scale = ranged + group.scale_mean;
    std::array<float, 16> weights{};  // of the codes, in this block
    for (size_t code = 0; code < weights.size(); ++code) weights[code] = kNf4Levels[code] * scale;
    for (int64_t i = first; i < first + stop; ++i) {
      const uint8_t pair = group.codes[static_cast<size_t>(i / 2)];
      *values++ = weights[i % 2 == 0 ? pair >> 4 : pair & 15];
    }
    at += stop;
  }
}

void read_nf4(int64_t begin, int64_t end, const ReadNf4Groups& read, View values) {
  std::vector<Nf4Group> groups(static_cast<size_t>(kChunkGroups));
  std::vector<float> weights(static_cast<size_t>(kChunkGroups * kNf4GroupWeights));
  for (int64_t at = begin; at < end;) {
    const int64_t first = at / kNf4GroupWeights, start = first * kNf4GroupWeights;
    const int64_t stop = std::min(end, start + kChunkGroups * kNf4GroupWeights);
    read(first, nf4_groups(stop), groups.data());
    dequantize_nf4(groups.data(), at - start, stop - start, weights.data());
    const View part = values.rows(at - begin, stop - begin);
    convert(weights.data(), DType::f32, part.data, part.dtype, static_cast<size_t>(stop - at));
    at = stop;
  }
}

}  // namespace tessera
