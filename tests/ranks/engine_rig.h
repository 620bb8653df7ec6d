// Trains a small model on the ranks of a test, and also in one process on the same global batches.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "forwarding_group.h"
#include "rank_test.h"
#include "tessera/base/random.h"
#include "tessera/device/cuda/cuda_device.h"
#include "tessera/engine/engine.h"
#include "tessera/engine/plan.h"
#ifdef TESSERA_TEST_CUDA_STREAMS
#include "tessera/device/cpu/cpu_device.h"
#include "tessera/device/cuda/cuda_stream.h"
#endif

namespace tessera {

constexpr int kSteps = 2, kMicroBatches = 3, kSequences = 5;  // 2, 3 or 4 ranks get unequal shares of 5 sequences
constexpr int64_t kVocabulary = 37, kNewTokens = 4;
constexpr double kLearningRate = 1e-2;
// The maximum numbers of tokens, sequences and targets of one rank: in a micro-batch of training, in a batch of
// evaluation, and in the prompts of generation. A sequence in training or evaluation has at most 31 tokens, so 160
// tokens are enough for 5 sequences.
inline WorkBounds work_of(int num_micro_batches) {
  return {{160, kSequences, 160}, {160, kSequences, 160}, {40, kSequences, 0}, kNewTokens, num_micro_batches};
}

inline ModelConfig small_config(const std::string& architecture) {
  ModelConfig config;
  config.architecture = architecture;
  config.vocab_size = kVocabulary;
  config.hidden_size = 24;
  config.num_layers = 3;
  config.num_heads = 3;
  config.ff_dim = architecture == "bloom" ? 96 : 40;
  config.initializer_range = 0.2;
  config.hidden_dropout = config.attention_dropout = 0.1;
  if (architecture != "bloom" && architecture != "gpt") {
    config.num_kv_heads = 1;
    config.head_channels = 6;  // the queries have 18 channels (3 heads of 6), fewer than hidden_size
    config.head_norms = config.qkv_bias = true;
  }
  return config;
}

using Sequence = std::pair<std::vector<int32_t>, std::vector<int32_t>>;  // ids, labels

// The sequences of one global micro-batch. The last micro-batch of a step has only two sequences: with three or four
// ranks, some ranks get none.
inline std::vector<Sequence> sequences_of(int step, int micro_batch) {
  RandomStream random(static_cast<uint64_t>(100 * step + micro_batch), 1);
  std::vector<Sequence> sequences(micro_batch + 1 == kMicroBatches ? 2 : kSequences);
  for (auto& [ids, labels] : sequences) {
    const auto length = 2 + random.next_below(30);
    for (uint64_t t = 0; t < length; ++t) {
      ids.push_back(static_cast<int32_t>(random.next_below(kVocabulary)));
      labels.push_back(t % 3 == 1 ? static_cast<int32_t>(random.next_below(kVocabulary)) : -100);
    }
  }
  return sequences;
}

inline PackedBatch pack(const std::vector<Sequence>& sequences, size_t begin, size_t end, int64_t first_sequence) {
  PackedBatch batch;
  batch.starts = {0};
  for (size_t i = begin; i < end; ++i) {
    const auto& [ids, labels] = sequences[i];
    batch.sequence_numbers.push_back(first_sequence + static_cast<int64_t>(i));
    batch.ids.insert(batch.ids.end(), ids.begin(), ids.end());
    batch.labels.insert(batch.labels.end(), labels.begin(), labels.end());
    batch.starts.push_back(static_cast<int32_t>(batch.ids.size()));
  }
  for (const int32_t label : batch.labels) batch.num_targets += label >= 0;
  return batch;
}

// A rank's parts of the last `num_micro_batches` global micro-batches of a step.
inline std::vector<PackedBatch> window_of(int step, int rank, int world_size, int num_micro_batches) {
  std::vector<PackedBatch> window;
  int64_t first = 0;
  for (int k = 0; k < num_micro_batches; ++k) {
    const auto sequences = sequences_of(step, kMicroBatches - num_micro_batches + k);
    const size_t n = sequences.size(), r = static_cast<size_t>(rank), R = static_cast<size_t>(world_size);
    window.push_back(pack(sequences, n * r / R, n * (r + 1) / R, first));
    first += static_cast<int64_t>(n);
  }
  return window;
}

using States = std::map<std::pair<int64_t, int>, std::vector<float>>;  // key: unit and kind

struct Outcome {
  std::vector<double> losses, norms;
  double eval_loss = 0;
  std::vector<std::vector<int32_t>> answers;  // to this rank's prompts
  States initial, states;                     // complete arrays, before and after training
};

inline std::vector<std::vector<int32_t>> prompts_of(int rank, int world_size) {
  std::vector<std::vector<int32_t>> prompts;
  for (int i = 0; i < kSequences; ++i) {
    if (i * world_size / kSequences == rank) prompts.push_back({i + 3, 2 * i + 1, 7});
  }
  return prompts;
}

// The values of an array as floats, and the reverse. Of elements that stand for many values, one float for each
// byte: these bytes must stay the same.
inline int64_t floats_of(DType dtype) {
  return is_packed(dtype) ? static_cast<int64_t>(size_of(dtype)) : 1;
}
inline std::vector<float> as_floats(View values) {
  if (is_packed(values.dtype)) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(values.data);
    return {bytes, bytes + values.bytes()};
  }
  std::vector<float> floats(static_cast<size_t>(values.num_elems()));
  convert(values.data, values.dtype, floats.data(), DType::f32, floats.size());
  return floats;
}
inline void from_floats(const float* floats, View to) {
  if (!is_packed(to.dtype)) {
    return convert(floats, DType::f32, to.data, to.dtype, static_cast<size_t>(to.num_elems()));
  }
  for (int64_t i = 0; i < to.bytes(); ++i) to.data[i] = static_cast<std::byte>(floats[i]);
}

// Gathers the complete arrays from the parts that the ranks save, in one exchange. This is a collective call.
inline States all_states(Engine& engine, Communicator& world) {
  struct Piece {
    int64_t unit, kind, begin, size;
  };
  States states;
  for (int64_t u = 0; u < engine.model().num_units(); ++u) {
    for (const StateKind kind : kStateKinds) {
      // A value that no rank writes stays NaN.
      const int64_t num_floats = engine.states().num_elems(kind, u) * floats_of(engine.states().dtype(kind));
      states[{u, static_cast<int>(kind)}].assign(static_cast<size_t>(num_floats), NAN);
    }
  }
  std::string own;
  engine.states().save([&](StateKind kind, int64_t unit, ElemRange range, View from) {
    EXPECT_EQ(range.size(), from.num_elems());
    EXPECT_EQ(from.dtype, engine.states().dtype(kind));
    const int64_t floats = floats_of(from.dtype);
    const Piece piece{unit, static_cast<int64_t>(kind), range.begin * floats, range.size() * floats};
    own.append(reinterpret_cast<const char*>(&piece), sizeof piece);
    const std::vector<float> values = as_floats(from);
    own.append(reinterpret_cast<const char*>(values.data()), sizeof(float) * values.size());
  });
  for (const std::string& text : world.all_gather_text(own, "states")) {
    for (size_t at = 0; at < text.size();) {
      Piece piece{};
      std::memcpy(&piece, text.data() + at, sizeof piece);
      at += sizeof piece;
      const size_t bytes = sizeof(float) * static_cast<size_t>(piece.size);
      std::memcpy(states.at({piece.unit, static_cast<int>(piece.kind)}).data() + piece.begin, text.data() + at, bytes);
      at += bytes;
    }
  }
  return states;
}

#ifdef TESSERA_TEST_CUDA_STREAMS
// A CPU device whose streams are CudaStreams. CudaStreams use the replacement for CUDA's runtime in tests/stubs.
class CpuWithCudaStreams final : public CpuDevice {
 public:
  using CpuDevice::CpuDevice;
  bool host_visible() const override { return false; }  // transfers to and from the host then use buffers, as on a GPU
  std::unique_ptr<Stream> make_stream() override {
    return std::make_unique<cuda::CudaStream>(0, cuda::CudaStream::Waits::in_own_thread);
  }
};
#endif

// Whether the plan has the right size for the staging buffers of `device`. For every CPU device, the plan assumes that
// transfers to and from the host need no staging buffers. CpuWithCudaStreams needs some.
inline bool plan_knows_staging(const Device& device) {
  return device.kind() == DeviceKind::cuda || device.host_visible();
}

// This rank's device, of the kind that --device selects.
inline std::unique_ptr<Device> make_test_device(ThreadPool& pool) {
  if (test_uses_cuda()) return make_cuda_device(cuda_ordinal_of_rank(test_world().local_rank()));
#ifdef TESSERA_TEST_CUDA_STREAMS
  return std::make_unique<CpuWithCudaStreams>(pool);
#else
  return make_cpu_device(pool);
#endif
}

// NCCL takes long to start a group, so all cases of a program on GPUs share their groups. These book NCCL's memory with
// a device of their own.
class GpuGroups final : public testing::Environment {
 public:
  Communicator& world() {
    if (!world_) {
      device_ = make_cuda_device(cuda_ordinal_of_rank(test_world().local_rank()));
      world_ = test_world().make_communicator(*device_);
    }
    return *world_;
  }
  // The group of this rank among those that the ranks form together, each with its own arguments. Collective.
  Communicator& split(int color, int rank, int size) {
    std::string key;
    const std::string own = std::to_string(color) + " " + std::to_string(rank) + " " + std::to_string(size) + "\n";
    for (const std::string& text : world().all_gather_text(own, "a split")) key += text;
    auto& group = parts_[key];
    if (!group) group = world().split(color, rank, size);
    return *group;
  }
  void TearDown() override {
    parts_.clear();
    world_.reset(), device_.reset();
  }

 private:
  std::unique_ptr<Device> device_;
  std::unique_ptr<Communicator> world_;
  std::map<std::string, std::unique_ptr<Communicator>> parts_;
};
inline auto* const gpu_groups = static_cast<GpuGroups*>(testing::AddGlobalTestEnvironment(new GpuGroups));

// A reference to one of the shared groups.
class SharedGroup final : public ForwardingGroup {
 public:
  using ForwardingGroup::ForwardingGroup;
  std::unique_ptr<Communicator> split(int color, int rank, int size) override {
    return std::make_unique<SharedGroup>(gpu_groups->split(color, rank, size));
  }
};

// The group of all ranks of the test for a run on `device`.
inline std::unique_ptr<Communicator> make_test_group(Device& device) {
  if (test_uses_cuda()) return std::make_unique<SharedGroup>(gpu_groups->world());
  return test_world().make_communicator(device);
}

class Rig {
 public:
  Rig() : pool_(1) {}

  Outcome run(Communicator& world, Device& device, Device& host, const ModelConfig& config,
              const EngineOptions& options, int num_micro_batches, int ranks_per_node) {
    const auto enter = [&](Phase phase) {
      device.ledger().enter(phase);
      host.ledger().enter(phase);
    };
    Engine engine({device, host, world, ranks_per_node}, config, options);
    engine.prepare(work_of(num_micro_batches));
    engine.states().initialize(5);
    // Save and load all states once, as a run does when it saves a checkpoint and resumes from it.
    enter(Phase::save);
    Outcome outcome;
    outcome.initial = all_states(engine, world);
    // A GPU initializes parameters with other bits than a CPU. Runs on GPUs therefore load the initial parameters of
    // the plain run, which uses a CPU.
    const States& states = test_uses_cuda() && !initial_.empty() ? initial_ : outcome.initial;
    enter(Phase::resume);
    engine.states().load([&](StateKind kind, int64_t unit, ElemRange range, View to) {
      const auto& all = states.at({unit, static_cast<int>(kind)});
      ASSERT_EQ(to.num_elems(), range.size());
      from_floats(all.data() + range.begin * floats_of(to.dtype), to);
    });
    const double loss_scale = options.dtype == DType::f16 ? 1024 : 1;
    for (int step = 0; step < kSteps; ++step) {
      enter(Phase::step);
      const auto window = window_of(step, world.rank(), world.size(), num_micro_batches);
      const StepResult result = engine.train_step(window, kLearningRate, loss_scale);
      EXPECT_FALSE(result.skipped);
      outcome.losses.push_back(result.loss());
      outcome.norms.push_back(result.gradient_norm);
    }
    enter(Phase::evaluation);
    const auto batch = window_of(9, world.rank(), world.size(), 3)[0];
    const LossSum loss = engine.evaluate(batch);
    const auto sums = world.sum({loss.loss_sum, static_cast<double>(loss.num_targets)}, "evaluation");
    outcome.eval_loss = sums[0] / sums[1];
    outcome.answers = engine.generate(prompts_of(world.rank(), world.size()),
                                      {.max_new_tokens = kNewTokens,
                                       .eos_id = 1,
                                       .sampling = Sampling{.temperature = 0.8, .top_k = 20, .top_p = 0.9},
                                       .first_number = 10 * world.rank()});
    enter(Phase::save);
    outcome.states = all_states(engine, world);
    // save_parameters() must give the same parameters as save().
    std::map<std::pair<int64_t, StateKind>, int64_t> num_saved;
    engine.states().save_parameters([&](Section section, int64_t unit, ElemRange range, View part) {
      const StateKind kind = parameters_of(section);
      int64_t& saved = num_saved[{unit, kind}];
      EXPECT_EQ(range.begin, engine.states().saved_range(kind, unit).begin + saved);
      EXPECT_EQ(range.size(), part.num_elems());
      saved += range.size();
      const auto& all = outcome.states.at({unit, static_cast<int>(kind)});
      const std::vector<float> values = as_floats(part);
      EXPECT_TRUE(std::equal(values.begin(), values.end(), all.begin() + range.begin * floats_of(part.dtype)));
    });
    for (int64_t u = 0; u < engine.model().num_units(); ++u) {
      for (const StateKind kind : {StateKind::parameters, StateKind::frozen, StateKind::quantized}) {
        EXPECT_EQ((num_saved[{u, kind}]), engine.states().saved_range(kind, u).size());
      }
    }
    for (const auto& [key, values] : outcome.states) {
      if (key.second == static_cast<int>(StateKind::frozen) || key.second == static_cast<int>(StateKind::quantized)) {
        EXPECT_EQ(values, states.at(key));
      }
    }
    largest_work(engine, num_micro_batches, enter);
    return outcome;
  }

  // Gives every rank the largest work within the bounds that prepare() got. The plan is computed for this work.
  template <typename Enter>
  void largest_work(Engine& engine, int num_micro_batches, const Enter& enter) {
    const BatchBounds bounds = work_of(1).training;
    PackedBatch batch;
    for (int64_t i = 0; i <= bounds.num_sequences; ++i) {
      batch.starts.push_back(static_cast<int32_t>(i * bounds.num_tokens / bounds.num_sequences));
    }
    batch.ids.assign(static_cast<size_t>(bounds.num_tokens), 5);
    batch.labels.assign(static_cast<size_t>(bounds.num_targets), 7);
    batch.num_targets = static_cast<int32_t>(bounds.num_targets);
    enter(Phase::step);
    const double loss_scale = engine.options().dtype == DType::f16 ? 1024 : 1;
    engine.train_step(std::vector<PackedBatch>(static_cast<size_t>(num_micro_batches), batch), 0, loss_scale);
    enter(Phase::evaluation);
    engine.evaluate(batch);
    const BatchBounds reading = work_of(1).generation;
    std::vector<std::vector<int32_t>> prompts(static_cast<size_t>(reading.num_sequences), {5});
    prompts[0].resize(static_cast<size_t>(reading.num_tokens - reading.num_sequences + 1), 5);
    engine.generate(prompts, {.max_new_tokens = kNewTokens});
  }

  // The plain run: one process with all sequences.
  Outcome plain(const ModelConfig& config, EngineOptions options, int num_micro_batches) {
    const auto device = make_cpu_device(pool_), host = make_cpu_device(pool_);
    const auto alone = make_self_communicator();
    options.sharding = {};
    const Outcome outcome = run(*alone, *device, *host, config, options, num_micro_batches, 1);
    initial_ = outcome.initial;
    return outcome;
  }

  // Runs the training of plain() on all ranks of the test's world. This process is one of these ranks. Checks that the
  // ledgers agree with the plan.
  Outcome sharded(const ModelConfig& config, const EngineOptions& options, int num_micro_batches, int ranks_per_node) {
    World& world = test_world();
    const auto device = make_test_device(pool_);
    pinned_ = !pinned_;
    const auto host = test_uses_cuda() && pinned_ ? make_pinned_host_device(pool_) : make_cpu_device(pool_);
    const auto communicator = make_test_group(*device);
    const Outcome outcome = run(*communicator, *device, *host, config, options, num_micro_batches, ranks_per_node);
    const Plan plan = plan_run(config, options, work_of(num_micro_batches),
                               {.world_size = world.size(),
                                .rank = world.rank(),
                                .ranks_per_node = ranks_per_node,
                                .num_threads = 1,
                                .device = device->kind()});
    for (int p = 0; p < kNumPhases; ++p) {
      for (int c = 0; c < kNumCategories; ++c) {
        const auto phase = static_cast<Phase>(p);
        const auto category = static_cast<Category>(c);
        if (category == Category::staging && !plan_knows_staging(*device)) continue;
        // NCCL's memory is booked with the device of GpuGroups.
        if (category == Category::context && test_uses_cuda() && world.size() > 1) continue;
        if (phase == Phase::load && category == Category::staging) {
          // The plan counts the buffers of load_parameters(). The rig calls initialize(), whose buffers take
          // at most as much host memory.
          EXPECT_LE(host->ledger().peak(phase, category), plan.host.peak(phase, category));
          continue;
        }
        EXPECT_EQ(device->ledger().peak(phase, category), plan.device.peak(phase, category))
            << name_of(phase) << " " << name_of(category);
        EXPECT_EQ(host->ledger().peak(phase, category), plan.host.peak(phase, category))
            << "host " << name_of(phase) << " " << name_of(category);
      }
    }
    return outcome;
  }

 private:
  ThreadPool pool_;
  States initial_;       // of the plain run
  bool pinned_ = false;  // on GPUs: whether the latest sharded run used pinned memory; every second run does
};

// The maximum relative differences between a run and the plain run of the same precision.
struct Tolerance {
  double loss, norm, parameters;  // `parameters` limits the norm of the difference of all parameters
};

// If the n terms of an f32 sum are added in another order, the relative change of the sum is about 1e-7 √n. For the few
// hundred terms of a loss, this is about 2e-6. The limits for the loss and the norm are 50 and 500 times this value.
// AdamW divides by the size of the gradient. In its first steps, the error of an update is therefore at most the
// learning rate times the relative error of the gradient. If the terms of a gradient nearly cancel, this relative error
// is larger, so the bound for parameters is wider. The gradient of the key biases is only rounding error, but AdamW
// still moves these biases by the learning rate. Two runs may move a bias in opposite directions, so expect_close()
// allows a difference of twice the learning rate per step.
constexpr Tolerance kSinglePrecision{1e-4, 1e-3, 1e-2};

// In 16 bits, another order of additions may round an activation to a neighbouring 16-bit number. The relative
// distance between two neighbours is about u = 2^-8 (bf16) or 2^-11 (f16). Gradients that are reduced in 16 bits also
// differ by about u. The loss and the norm average over many such differences. Small gradients change their sign more
// often than in f32, and AdamW's updates then change their sign as well. A GPU's attention also rounds values that the
// CPU keeps in 32 bits. After an update, the loss contains the rounding errors of the forward pass and of the
// gradients. In f16, relative errors of the loss of up to 1.4 u were measured, so the limit is 2 u.
inline Tolerance tolerance_of(const EngineOptions& options) {
  const DType reduced = options.sharding.reduce_dtype.value_or(options.dtype);
  if (options.dtype == DType::f32 && reduced == DType::f32) return kSinglePrecision;
  // Ranks add gradients in another order than the plain run, and a GPU adds with fewer bits than its CPU, so that many
  // values are rounded to the other neighbour in 8 bits. Cases are still compared bit for bit with each other.
  if (options.float8) return {0x1p-5, 0x1p-3, 0.25};
  const bool has_bf16 = options.dtype == DType::bf16 || reduced == DType::bf16;
  const double u = has_bf16 ? 0x1p-8 : 0x1p-11;
  return {has_bf16 ? u : 2 * u, 4 * u, 3e-2};
}

inline void expect_close(const Outcome& plain, const Outcome& outcome, const Tolerance& tolerance) {
  for (size_t i = 0; i < plain.losses.size(); ++i) {
    EXPECT_NEAR(outcome.losses[i], plain.losses[i], tolerance.loss * plain.losses[i]) << "step " << i;
    EXPECT_NEAR(outcome.norms[i], plain.norms[i], tolerance.norm * plain.norms[i]) << "step " << i;
  }
  EXPECT_NEAR(outcome.eval_loss, plain.eval_loss, tolerance.loss * plain.eval_loss);
  double squares = 0, differences = 0, largest = 0;
  for (const auto& [key, values] : outcome.states) {
    if (key.second != static_cast<int>(StateKind::parameters)) continue;
    const auto& all = plain.states.at(key);
    for (size_t i = 0; i < values.size(); ++i) {
      const double expected = all[i], difference = values[i] - expected;
      squares += expected * expected;
      differences += difference * difference;
      largest = std::max(largest, std::abs(difference));
    }
  }
  EXPECT_LE(largest, 2 * kSteps * kLearningRate);
  EXPECT_LE(std::sqrt(differences), tolerance.parameters * std::sqrt(squares));
}

inline bool same_bits(const Outcome& a, const Outcome& b) {
  return a.losses == b.losses && a.norms == b.norms && a.eval_loss == b.eval_loss && a.answers == b.answers &&
         a.states == b.states;
}

}  // namespace tessera
