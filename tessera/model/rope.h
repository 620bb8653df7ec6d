// Rotary positions of a model: the frequencies of its channel pairs (Su et al. 2021), and how the frequencies are
// scaled for contexts that are longer than in pretraining.
#pragma once

#include <cstdint>
#include <vector>

namespace tessera {

struct Rope {
  // Sources: linear: Chen et al. 2023; llama3: Llama 3.1; yarn: Peng et al. 2023. The formulas of all three are as in
  // the library transformers. The comments of the members name the scalings that use them.
  enum class Scaling { none, linear, llama3, yarn } scaling = Scaling::none;
  double theta = 10000;                              // all: pair j has the unscaled frequency theta^(−2j/head_dim)
  double factor = 1;                                 // linear, llama3, yarn
  double original_positions = 0;                     // llama3, yarn: the context in pretraining, in tokens
  double low_freq_factor = 1, high_freq_factor = 4;  // llama3
  double beta_fast = 32, beta_slow = 1;              // yarn
  bool truncates = true;                             // yarn: rounds the indices of the first and last interpolated pair
  double attention_factor = 1;                       // yarn: multiplies sines and cosines

  bool operator==(const Rope&) const = default;
};

// Returns the angle per position of channel pairs 0 to head_dim/2 − 1, in radians. Rounds to f32 at the same steps as
// transformers.
std::vector<float> rope_frequencies(const Rope& rope, int64_t head_dim);

// Returns what llama3's scaling divides the frequency of each channel pair by. `rope` must have this scaling.
std::vector<float> llama3_divisors(const Rope& rope, int64_t head_dim);

// Returns the attention_factor of yarn for a configuration that does not give it. mscale and mscale_all_dim are the
// configuration's values, or 0 if it does not give them.
double yarn_attention_factor(double factor, double mscale, double mscale_all_dim);

}  // namespace tessera
