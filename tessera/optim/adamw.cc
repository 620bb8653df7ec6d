#include "tessera/optim/adamw.h"

#include <algorithm>
#include <cmath>

namespace tessera {

AdamWStep adamw_step(const AdamWOptions& options, int64_t step, double learning_rate, double gradient_scale,
                     int64_t num_decayed) {
  AdamWStep update;
  update.learning_rate = learning_rate;
  update.beta1 = options.beta1;
  update.beta2 = options.beta2;
  update.epsilon = options.epsilon;
  update.weight_decay = options.weight_decay;
  update.bias_correction1 = 1 - std::pow(options.beta1, static_cast<double>(step));
  update.bias_correction2 = 1 - std::pow(options.beta2, static_cast<double>(step));
  update.gradient_scale = gradient_scale;
  update.num_decayed = num_decayed;
  return update;
}

double clip_factor(double norm, double max_norm) {
  if (std::isnan(norm)) return norm;
  return max_norm > 0 ? std::min(1.0, max_norm / (norm + 1e-6)) : 1.0;
}

bool may_update(double loss, double norm, double max_norm) {
  constexpr double kLargest = 1e19;  // its square is below 2^128, the limit of f32
  return std::isfinite(loss) && std::isfinite(norm) && norm * clip_factor(norm, max_norm) <= kLargest;
}

}  // namespace tessera
