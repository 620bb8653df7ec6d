// A sample gives the same results alone and packed with others: samples of a micro-batch do not see each other.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "engine_fixture.h"

namespace tessera {
namespace {

// 96 channels: large enough for the vector kernels.
ModelConfig wide(ModelConfig config) {
  config.hidden_size = 96;
  config.ff_dim = 4 * config.hidden_size;
  return config;
}

class PackedSamples : public EngineTest {
 protected:
  std::vector<ModelConfig> families() const {
    std::vector<ModelConfig> configs;
    for (const char* name : {"bloom", "gpt", "llama", "mistral", "qwen2", "qwen3"}) {
      configs.push_back(small_config(name));
      configs.push_back(wide(small_config(name, 0.1)));
    }
    configs.push_back(untied(small_config("bloom")));
    return configs;
  }
  std::vector<float> logits_of(Engine& engine, const PackedBatch& batch) const {
    std::vector<float> logits(batch.ids.size() * static_cast<size_t>(engine.model().config().vocab_size));
    probe(engine).logits(batch, logits.data());
    return logits;
  }
  // All gradients of loss_scale times the mean loss, one unit after the other.
  std::vector<double> gradients_of(Engine& engine, const PackedBatch& batch, double loss_scale = 1) const {
    probe(engine).accumulate_gradients({&batch, 1}, loss_scale);
    std::vector<double> all;
    for (int64_t u = 0; u < engine.model().num_units(); ++u) {
      const View g = probe(engine).gradients(u).trainable();
      if (g.dtype == DType::f64) {
        all.insert(all.end(), g.as<double>(), g.as<double>() + g.num_elems());
      } else {
        all.insert(all.end(), g.as<float>(), g.as<float>() + g.num_elems());
      }
    }
    return all;
  }

  const PackedBatch packed_ = make_batch(4, {5, 1, 19, 2, 12, 7});
  const size_t num_samples_ = packed_.starts.size() - 1;
};

// Equal up to the rounding of products: their kernels add in another order if the matrix has another number of rows.
// Attention, positions and norms have no such difference, because they run per sequence or per token. A sample that saw
// another sample would differ in the first digits.
TEST_F(PackedSamples, HaveTheSameLogits) {
  for (const ModelConfig& config : families()) {
    SCOPED_TRACE(config.architecture + " " + std::to_string(config.hidden_size));
    const auto engine = make(config, {});
    const auto vocab = static_cast<size_t>(config.vocab_size);
    const std::vector<float> packed = logits_of(*engine, packed_);
    for (size_t b = 0; b < num_samples_; ++b) {
      const std::vector<float> own = logits_of(*engine, alone(packed_, b));
      const float* of_packed = packed.data() + static_cast<size_t>(packed_.starts[b]) * vocab;
      float most = 0, error = 0;
      for (size_t i = 0; i < own.size(); ++i) {
        most = std::max(most, std::abs(own[i]));
        error = std::max(error, std::abs(own[i] - of_packed[i]));
      }
      EXPECT_LE(error, 32 * std::numeric_limits<float>::epsilon() * most) << "sample " << b;
    }
  }
}

// The packed batch has the sum of the samples' losses and gradients, up to the rounding of sums in another order. In
// double precision, 13 digits are equal. In single precision, the initial values of these models are large, so some
// activations lose two of the seven digits.
TEST_F(PackedSamples, HaveTheSameLossesAndGradients) {
  for (const auto& [dtype, tolerance] : {std::pair(DType::f32, 3e-5), std::pair(DType::f64, 1e-13)}) {
    for (const ModelConfig& config : families()) {
      SCOPED_TRACE(config.architecture + " " + std::to_string(config.hidden_size));
      EngineOptions options;
      options.dtype = dtype;
      const auto engine = make(config, options);
      const StepResult result = probe(*engine).accumulate_gradients({&packed_, 1});
      const std::vector<double> packed = gradients_of(*engine, packed_);
      double loss_sum = 0;
      std::vector<double> sum(packed.size(), 0), size(packed.size(), 0);
      for (size_t b = 0; b < num_samples_; ++b) {
        const PackedBatch sample = alone(packed_, b);
        if (sample.num_targets == 0) continue;
        loss_sum += probe(*engine).accumulate_gradients({&sample, 1}).loss_sum;
        // The loss of the packed batch is the mean over all targets, so the sample has this share of it.
        const double share = static_cast<double>(sample.num_targets) / packed_.num_targets;
        const std::vector<double> own = gradients_of(*engine, sample, share);
        for (size_t i = 0; i < sum.size(); ++i) {
          sum[i] += own[i];
          size[i] += std::abs(own[i]);
        }
      }
      EXPECT_NEAR(loss_sum / result.loss_sum, 1, tolerance);
      double most = 0, error = 0;
      for (size_t i = 0; i < sum.size(); ++i) {
        most = std::max(most, size[i]);
        error = std::max(error, std::abs(packed[i] - sum[i]));
      }
      EXPECT_GT(most, 0);
      EXPECT_LT(error / most, tolerance);
    }
  }
}

}  // namespace
}  // namespace tessera
