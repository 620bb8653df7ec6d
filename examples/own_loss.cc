// Trains with a loss of its own: the cross-entropy with label smoothing. The share `smoothing` of each target's
// probability belongs to all tokens of the vocabulary alike.
//
//     own_loss MODEL TRAIN OUTPUT SMOOTHING
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include <tessera/tessera.h>

namespace {

double smoothed(const tessera::LossChunk& chunk, double smoothing) {
  // Without smoothing, the loss is the one that is built in, to the bit.
  if (smoothing == 0) return chunk.cross_entropy();
  const auto vocabulary = static_cast<double>(chunk.vocab_size);
  double sum = 0;
  for (std::int64_t i = 0; i < chunk.num_rows; ++i) {
    float* const logits = chunk.logits + i * chunk.vocab_size;
    const std::int32_t target = chunk.targets[static_cast<std::size_t>(i)];
    const double largest = *std::max_element(logits, logits + chunk.vocab_size);
    double exponentials = 0, total = 0;
    for (std::int64_t k = 0; k < chunk.vocab_size; ++k) {
      exponentials += std::exp(logits[k] - largest);
      total += logits[k];
    }
    const double log_sum = largest + std::log(exponentials);
    sum += log_sum - (1 - smoothing) * logits[target] - smoothing * total / vocabulary;
    if (!chunk.needs_gradients()) continue;
    for (std::int64_t k = 0; k < chunk.vocab_size; ++k) {
      const double wanted = (k == target ? 1 - smoothing : 0) + smoothing / vocabulary;
      logits[k] = static_cast<float>(chunk.scale * (std::exp(logits[k] - log_sum) - wanted));
    }
  }
  return sum;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: own_loss MODEL TRAIN OUTPUT SMOOTHING\n");
    return 2;
  }
  try {
    const double smoothing = std::atof(argv[4]);
    tessera::Hooks hooks;
    hooks.loss = [smoothing](const tessera::LossChunk& chunk) { return smoothed(chunk, smoothing); };
    hooks.on_step = [](const tessera::StepMetrics& step) {
      std::printf("%.17g\n", step.loss.value_or(0));
      return tessera::Next::proceed;
    };
    tessera::train({{"model", argv[1]},
                    {"dataset", argv[2]},
                    {"output-dir", argv[3]},
                    {"max-steps", 4},
                    {"max-length", 256},
                    {"precision", "fp32"},
                    {"device", "cpu"},
                    {"seed", 1},
                    {"save-strategy", "no"}},
                   hooks);
  } catch (const tessera::Error& error) {
    std::fprintf(stderr, "%s error: %s\n", tessera::name_of(error.kind()), error.what());
    return 1;
  }
}
