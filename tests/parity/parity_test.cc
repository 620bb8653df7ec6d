// Compares Tessera in fp32 with transformers and torch: logits, loss, the gradient of every parameter, twenty AdamW
// updates and greedy generation. In lower precisions, compares only the loss, and checks that training reduces it.
// tools/make_references.py made the reference files.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "../unit/engine/engine_probe.h"
#include "tessera/base/read_file.h"
#include "tessera/device/cuda/cuda_device.h"
#include "tessera/load/initial_weights.h"
#include "tessera/load/model_files.h"
#include "tessera/model/adapter_config.h"
#include "tessera/optim/schedule.h"
#include "tessera/store/safetensors.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr double kEpsilon = 0x1p-24;  // half an ulp of 1 in f32, the largest relative rounding error of one operation

// The same tests are built as two programs: one for the CPU and one for a GPU.
#ifdef TESSERA_PARITY_ON_GPU
constexpr bool kOnGpu = true;
#else
constexpr bool kOnGpu = false;
#endif

fs::path data_folder() {
  return fs::path(TESSERA_TEST_DIR) / "parity" / "data";
}

class Reference {
 public:
  explicit Reference(const std::string& model) : file_(data_folder() / model / "reference.safetensors") {}

  template <typename T>
  std::vector<T> get(const std::string& name) const {
    const TensorInfo& info = file_.get(name);
    std::vector<T> values(static_cast<size_t>(info.num_elems()));
    file_.read_into(info, view_of(values.data(), {info.num_elems()}));
    return values;
  }
  bool has(const std::string& name) const { return file_.find(name) != nullptr; }
  PackedBatch batch(const std::string& prefix) const {
    PackedBatch batch{get<int32_t>(prefix + "ids"), get<int32_t>(prefix + "labels"), get<int32_t>(prefix + "starts"),
                      0};
    for (const int32_t label : batch.labels) batch.num_targets += label >= 0;
    return batch;
  }

 private:
  SafetensorsFile file_;
};

class Parity : public testing::TestWithParam<const char*> {
 protected:
  Parity()
      : pool_(2),
        device_(kOnGpu ? make_cuda_device(0) : make_cpu_device(pool_)),
        host_(make_cpu_device(pool_)),
        alone_(make_self_communicator()),
        reference_(GetParam()) {}

  std::unique_ptr<Engine> make_engine(EngineOptions options = {}, int64_t micro_batches = 1) {
    const fs::path folder = data_folder() / GetParam();
    ModelConfig config = read_model_config(folder / "config.json");
    AdapterPlace adapter;
    if (fs::exists(folder / kAdapterConfig)) {
      adapter.folder = folder;
      config.adapter = parse_adapter_config(read_file(folder / kAdapterConfig, {}), kAdapterConfig);
    }
    auto engine = std::make_unique<Engine>(EnginePlace{*device_, *host_, *alone_}, config, options);
    load_parameters(*engine, folder, *alone_, pool_, adapter);
    const BatchBounds bounds{160, 16, 160};
    engine->prepare({bounds, bounds, bounds, 12, micro_batches});
    return engine;
  }
  // Whether element j of a tensor belongs to a bias of attention's keys that has no gradient. In a score q·(k + bias),
  // the bias shifts all scores of the query q by the same amount, and softmax ignores this shift. The gradient is
  // therefore 0, and its computed values are only rounding errors. With rotary positions, the shift depends on the
  // key's position. The key biases of such models have a gradient, so the function returns false for them.
  static bool is_key_bias(const ModelConfig& config, const std::string& name, size_t j) {
    const auto C = static_cast<size_t>(config.hidden_size), D = static_cast<size_t>(config.head_dim());
    if (name.ends_with("query_key_value.bias")) return j / D % 3 == 1;
    return name.ends_with("in_proj_bias") && j / C == 1;
  }

  // Compares the tensors that views(unit) returns, for example gradients, with "<kind>/<name>" of the reference. An
  // error may be as large as `tolerance` times the tensor's largest element. For elements with is_key_bias(), an error
  // may be as large as `key_bias_tolerance` itself.
  template <typename Views>
  void expect_near(const Engine& engine, const std::string& kind, double tolerance, double key_bias_tolerance,
                   const Views& views) {
    for (int64_t u = 0; u < engine.model().num_units(); ++u) {
      const ParameterViews p = views(u);
      for (size_t i = 0; i < p.table->specs().size(); ++i) {
        if (!p.table->specs()[i].trainable()) continue;
        const std::string& name = p.table->specs()[i].name;
        const std::string key = kind + "/" + engine.model().file_name(name);
        const std::vector<float> expected = reference_.get<float>(key);
        std::vector<float> actual(expected.size());
        device_->copy_to_host(p[i], actual.data());
        double largest = 0, error = 0;
        for (size_t j = 0; j < expected.size(); ++j) {
          largest = std::max(largest, std::abs(double{expected[j]}));
          const double difference = std::abs(double{expected[j]} - actual[j]);
          if (is_key_bias(engine.model().config(), name, j))
            EXPECT_LE(difference, key_bias_tolerance) << key;
          else
            error = std::max(error, difference);
        }
        // With rotary positions, the gradient of a key bias is a sum whose terms almost cancel, so its relative
        // rounding error is larger.
        const double factor = key.ends_with("k_proj.bias") ? 4 : 1;
        EXPECT_LE(error, factor * tolerance * largest) << key << ", relative " << error / largest;
      }
    }
  }

  ThreadPool pool_;
  std::unique_ptr<Device> device_, host_;
  std::unique_ptr<Communicator> alone_;
  Reference reference_;
};

TEST_P(Parity, LogitsLossAndGradients) {
  for (const Recomputation& recomputation :
       {Recomputation{}, Recomputation{.blocks = 1, .mlp = 1, .attention = kAllBlocks},
        Recomputation{.blocks = kAllBlocks}}) {
    EngineOptions options;
    options.recomputation = recomputation;
    const auto engine = make_engine(options);
    const PackedBatch batch = reference_.batch("");

    const std::vector<float> expected = reference_.get<float>("logits");
    std::vector<float> logits(expected.size());
    probe(*engine).logits(batch, logits.data());
    double largest = 0, error = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
      largest = std::max(largest, std::abs(double{expected[i]}));
      error = std::max(error, std::abs(double{expected[i]} - logits[i]));
    }
    // A logit is the result of about 40 successive roundings (products of up to 128 terms, norms, softmax). A norm may
    // enlarge an earlier error by a small factor, so the limit is 256 rounding errors instead of 40.
    EXPECT_LE(error, 256 * kEpsilon * largest);

    const StepResult result = probe(*engine).accumulate_gradients({&batch, 1});
    const double loss = reference_.get<float>("loss")[0];
    EXPECT_NEAR(result.loss(), loss, 256 * kEpsilon * loss);
    EXPECT_NEAR(engine->evaluate(batch).loss_sum, result.loss_sum, 1e-12 * result.loss_sum);
    // The limit is four times the limit of the logits. Forward and backward together have twice as many roundings as
    // forward alone, and a gradient is a sum over up to 48 tokens.
    expect_near(*engine, "grad", 1024 * kEpsilon, 1024 * kEpsilon,
                [&](int64_t u) { return probe(*engine).gradients(u); });
  }
}

TEST_P(Parity, TwentyUpdates) {
  EngineOptions options;
  options.adamw = {0.9, 0.999, 1e-8, 0.01};
  options.max_grad_norm = 1.0;
  const auto engine = make_engine(options, 2);
  const std::vector<float> losses = reference_.get<float>("adamw_losses"), norms = reference_.get<float>("grad_norms"),
                           rates = reference_.get<float>("learning_rates");
  ASSERT_EQ(losses.size(), 20u);
  for (int64_t step = 0; step < 20; ++step) {
    const double rate = 1e-3 * schedule_factor({Schedule::linear, 3, 20}, step);
    EXPECT_NEAR(rate, rates[static_cast<size_t>(step)], 1e-3 * 2 * kEpsilon);
    std::vector<PackedBatch> window;
    for (int micro = 0; micro < 2; ++micro)
      window.push_back(reference_.batch(fmt::format("steps/{}/{}/", step, micro)));
    const StepResult result = engine->train_step(window, rate);
    const double loss = losses[static_cast<size_t>(step)], norm = norms[static_cast<size_t>(step)];
    EXPECT_NEAR(result.loss(), loss, 1024 * kEpsilon * loss) << step;
    EXPECT_NEAR(result.gradient_norm, norm, 4096 * kEpsilon * norm) << step;
  }
  // A gradient is a sum over tokens. If the terms of this sum nearly cancel, the rounding error is large compared with
  // the gradient. AdamW divides each gradient by the gradient's own size, so the error is a large part of the update.
  // Elements with is_key_bias() have gradients that are only rounding errors. Each of the twenty updates moves these
  // elements by up to 1e-3, the largest rate. Tessera and the reference may move them in opposite directions.
  expect_near(*engine, "final", 1e-4, 20 * 1e-3 * 2, [&](int64_t u) { return probe(*engine).parameters(u); });
}

TEST_P(Parity, GreedyGeneration) {
  const auto engine = make_engine();
  std::vector<std::vector<int32_t>> prompts, expected;
  for (int i = 0; reference_.has(fmt::format("generate/{}/prompt", i)); ++i) {
    prompts.push_back(reference_.get<int32_t>(fmt::format("generate/{}/prompt", i)));
    expected.push_back(reference_.get<int32_t>(fmt::format("generate/{}/output", i)));
    if (expected.back().back() == 2) expected.back().pop_back();  // token 2 is </s>, which generate() omits
  }
  ASSERT_GE(prompts.size(), 3u);
  EXPECT_EQ(engine->generate(prompts, {.max_new_tokens = 12, .eos_id = 2}), expected);  // together
  for (size_t i = 0; i < prompts.size(); ++i) {                                         // and separately
    EXPECT_EQ(engine->generate({&prompts[i], 1}, {.max_new_tokens = 12, .eos_id = 2})[0], expected[i]);
  }
}

TEST_P(Parity, LowerPrecisions) {
  struct Precision {
    const char* name;
    DType dtype;
    bool tf32;
    double roundoff;
  };
  std::vector<Precision> precisions = {{"bf16", DType::bf16, false, 0x1p-8}, {"fp16", DType::f16, false, 0x1p-11}};
  if (kOnGpu) precisions.push_back({"tf32", DType::f32, true, 0x1p-10});  // truncates factors to 11 significant bits
  for (const auto& [name, dtype, tf32, roundoff] : precisions) {
    EngineOptions options;
    options.dtype = dtype;
    options.tf32 = tf32;
    const auto engine = make_engine(options);
    const PackedBatch batch = reference_.batch("");
    const double loss = reference_.get<float>("loss")[0];
    // The rounding errors of the logits have either sign, so they partly cancel in the mean over the targets.
    EXPECT_NEAR(engine->evaluate(batch).loss_sum / batch.num_targets, loss, 4 * roundoff * loss) << name;
    const StepResult first = engine->train_step({&batch, 1}, 1e-3, 1024);
    EXPECT_FALSE(first.skipped);
    const StepResult second = engine->train_step({&batch, 1}, 1e-3, 1024);
    EXPECT_LT(second.loss(), first.loss()) << name;
  }
}

// Compares products of factors in 8 bits, with everything else in f32, with an emulation in NumPy in f64
// (tools/make_float8_references.py). A value that is very close to the middle between two values in 8 bits may be
// rounded to the other one here, depending on the order of sums in f32. This changes one term of a product by 2^-4 of
// its size, and all later results with it. Few values are that close, so the difference of a whole tensor stays below
// 2^-6 of the tensor. A rounding of all values that differed from the emulation's would make it 2^-4 or more.
// On a GPU everything else is bf16, and tensor cores add with fewer bits. More values are then rounded to the other
// side, and each of them moves later ones: a gradient differs as much as rounding changes it, by about an eighth. A
// wrong scale or transpose would change all of it. tests/gpu/float8_test.cc compares the kernels with CPUs.
class Float8Parity : public Parity {
 protected:
  static constexpr double kDifference = kOnGpu ? 0x1p-2 : 0x1p-6;
  static void expect_near(const std::vector<float>& actual, const std::vector<float>& expected,
                          const std::string& what) {
    double squares = 0, errors = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
      const double difference = double{expected[i]} - actual[i];
      squares += double{expected[i]} * expected[i];
      errors += difference * difference;
    }
    EXPECT_LE(std::sqrt(errors), kDifference * std::sqrt(squares)) << what;
  }
};

TEST_P(Float8Parity, LogitsLossAndGradients) {
  if (!make_kernels(*device_)->refusal_of_float8().empty()) GTEST_SKIP() << "the GPU has no products in 8 bits";
  EngineOptions options;
  options.float8 = true;
  if (kOnGpu) options.dtype = DType::bf16;
  for (const int64_t recomputed : {int64_t{0}, kAllBlocks}) {
    options.recomputation.blocks = recomputed;
    const auto engine = make_engine(options);
    const PackedBatch batch = reference_.batch("");
    const std::vector<float> expected = reference_.get<float>("logits");
    if (!kOnGpu) {  // a GPU's products need a multiple of four tokens: training pads the batch, this call does not
      std::vector<float> logits(expected.size());
      probe(*engine).logits(batch, logits.data());
      expect_near(logits, expected, "logits");
    }
    const StepResult result = probe(*engine).accumulate_gradients({&batch, 1});
    const double loss = reference_.get<float>("loss")[0];
    EXPECT_NEAR(result.loss(), loss, (kOnGpu ? 0x1p-8 : 0x1p-10) * loss);
    // Evaluation does not round to 8 bits.
    EXPECT_GT(std::abs(engine->evaluate(batch).loss_sum - result.loss_sum), 1e-4 * result.loss_sum);
    for (int64_t unit = 0; unit < engine->model().num_units(); ++unit) {
      const ParameterViews gradients = probe(*engine).gradients(unit);
      for (size_t i = 0; i < gradients.table->specs().size(); ++i) {
        const std::string key = "grad/" + engine->model().file_name(gradients.table->specs()[i].name);
        const std::vector<float> wanted = reference_.get<float>(key);
        std::vector<float> actual(wanted.size());
        std::vector<std::byte> bits(actual.size() * size_of(gradients[i].dtype));
        device_->copy_to_host(gradients[i], bits.data());
        convert(bits.data(), gradients[i].dtype, actual.data(), DType::f32, actual.size());
        expect_near(actual, wanted, key);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Llama, Float8Parity, testing::Values("float8"));

INSTANTIATE_TEST_SUITE_P(Models, Parity,
                         testing::Values("bloom_small", "bloom_odd_heads", "bloom_post_residual", "bloom_three_heads",
                                         "gpt_small", "gpt_wide", "llama_small", "llama_untied", "llama_yarn",
                                         "mistral_window", "qwen2_small", "qwen3_small", "bloom_lora", "llama_lora",
                                         "qwen2_lora", "llama_qlora", "bloom_qlora", "qwen2_qlora"),
                         [](const auto& values) { return std::string(values.param); });

}  // namespace
}  // namespace tessera
