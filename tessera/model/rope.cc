#include "tessera/model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace tessera {
namespace {

// llama3's scaling divides low frequencies by the factor and keeps high frequencies. In between, it interpolates
// between the divided and the unchanged frequency. Returns the weight of the unchanged one, from 0 to 1.
double llama3_kept_part(const Rope& rope, float frequency) {
  // How many turns of 2π the channel pair with this frequency makes over the context length of pretraining.
  const double turns = rope.original_positions * double{frequency} / (2 * std::numbers::pi);
  return std::clamp((turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor), 0.0, 1.0);
}

float llama3_scaled(const Rope& rope, float frequency) {
  const double part = llama3_kept_part(rope, frequency);
  return static_cast<float>((1 - part) * double{frequency} / rope.factor + part * double{frequency});
}

// Returns the index of the channel pair that makes `turns` turns of 2π over the context length of pretraining, before
// its frequency is scaled. The index may be a fraction.
double pair_of_turns(const Rope& rope, double head_dim, double turns) {
  return head_dim * std::log(rope.original_positions / (turns * 2 * std::numbers::pi)) / (2 * std::log(rope.theta));
}

void scale_by_yarn(const Rope& rope, int64_t head_dim, std::vector<float>& frequencies) {
  const auto D = static_cast<double>(head_dim);
  double low = pair_of_turns(rope, D, rope.beta_fast), high = pair_of_turns(rope, D, rope.beta_slow);
  if (rope.truncates) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0), high = std::min(high, D - 1);
  if (low == high) high += 0.001;
  for (size_t j = 0; j < frequencies.size(); ++j) {
    const double scaled = std::clamp((static_cast<double>(j) - low) / (high - low), 0.0, 1.0), f = frequencies[j];
    frequencies[j] = static_cast<float>(f / rope.factor * scaled + f * (1 - scaled));
  }
}

}  // namespace

std::vector<float> rope_frequencies(const Rope& rope, int64_t head_dim) {
  std::vector<float> frequencies;
  for (int64_t j = 0; j < head_dim / 2; ++j) {
    const float exponent = static_cast<float>(2 * j) / static_cast<float>(head_dim);
    frequencies.push_back(1.0f / std::pow(static_cast<float>(rope.theta), exponent));
  }
  if (rope.scaling == Rope::Scaling::linear) {
    for (float& f : frequencies) f /= static_cast<float>(rope.factor);
  } else if (rope.scaling == Rope::Scaling::llama3) {
    for (float& f : frequencies) f = llama3_scaled(rope, f);
  } else if (rope.scaling == Rope::Scaling::yarn) {
    scale_by_yarn(rope, head_dim, frequencies);
  }
  return frequencies;
}

std::vector<float> llama3_divisors(const Rope& rope, int64_t head_dim) {
  Rope unscaled = rope;
  unscaled.scaling = Rope::Scaling::none;
  std::vector<float> divisors;
  for (const float frequency : rope_frequencies(unscaled, head_dim)) {
    const double part = llama3_kept_part(rope, frequency);
    divisors.push_back(static_cast<float>(1 / ((1 - part) / rope.factor + part)));
  }
  return divisors;
}

double yarn_attention_factor(double factor, double mscale, double mscale_all_dim) {
  const auto scale = [&](double by) { return factor <= 1 ? 1.0 : 0.1 * by * std::log(factor) + 1; };
  return mscale != 0 && mscale_all_dim != 0 ? scale(mscale) / scale(mscale_all_dim) : scale(1);
}

}  // namespace tessera
