// The engine: holds a model's units on a device and runs steps, evaluations and generations on them, in an order that
// depends on sizes alone. On the counting device the same code is the plan of a run.
//
// Letters: B sequences, N tokens, C channels, L blocks, M rows with loss, P elements of a unit.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "tessera/data/batches.h"
#include "tessera/device/stack.h"
#include "tessera/model/model.h"
#include "tessera/optim/adamw.h"

namespace tessera {

struct EngineOptions {
  DType dtype = DType::f32;        // of parameters and activations; f64 in gradient checks
  bool checkpoint_blocks = false;  // keep only the blocks' inputs and run each block's forward again in backward
  AdamWOptions adamw;
  double max_grad_norm = 0;  // 0: no clipping
  uint64_t seed = 0;         // of dropout
};

// Upper bounds of a micro-batch, from which all memory follows.
struct BatchBounds {
  int64_t num_tokens = 0, num_sequences = 0, num_targets = 0;
};

// What a run will ask of the engine; a bound with no tokens means "never".
struct WorkBounds {
  BatchBounds training, evaluation, generation;  // generation: tokens of the prompts read at once
  int64_t max_new_tokens = 0;
};

struct StepResult {
  double loss_sum = 0;  // over the targets of the step
  int64_t num_targets = 0, num_tokens = 0, num_sequences = 0;
  double gradient_norm = 0;  // before clipping, of the mean loss
  double loss() const { return num_targets ? loss_sum / static_cast<double>(num_targets) : 0; }
};

struct LossSum {
  double loss_sum = 0;
  int64_t num_targets = 0;
};

class Engine {
 public:
  // Allocates the parameters, with contents unspecified. The device must outlive the engine.
  Engine(Device& device, ModelConfig config, EngineOptions options);

  const Model& model() const { return model_; }
  Device& device() { return device_; }
  Kernels& ops() { return *ops_; }
  const EngineOptions& options() const { return options_; }

  // Fills every parameter with its architecture's initial distribution. The same seed gives the same bits.
  void initialize_parameters(uint64_t seed);
  // Allocates what the work needs: activations, and gradients and optimizer states if it trains (states zeroed).
  void prepare(const WorkBounds& work);

  // One unit's flat buffers [P]; gradients and moments only after prepare() for training.
  ParameterViews parameters(int64_t unit) const { return views_of(units_[static_cast<size_t>(unit)].parameters, unit); }
  ParameterViews gradients(int64_t unit) const { return views_of(units_[static_cast<size_t>(unit)].gradients, unit); }
  View moment1(int64_t unit) const { return flat(units_[static_cast<size_t>(unit)].m, unit); }
  View moment2(int64_t unit) const { return flat(units_[static_cast<size_t>(unit)].v, unit); }

  // One update from the micro-batches of an accumulation window: gradients of the summed loss divided by the number of
  // valid targets of the whole window, clipped, AdamW. Updates are numbered from 1 by num_updates().
  StepResult train_step(std::span<const PackedBatch> window, double learning_rate);
  // Accumulates the gradients alone, for tests: the step without clipping and update.
  StepResult accumulate_gradients(std::span<const PackedBatch> window);

  LossSum evaluate(const PackedBatch& batch);
  // Logits [N, V] (host, in options().dtype) of every token: small inputs only.
  void logits(const PackedBatch& batch, void* host);

  // Greedy continuation of each prompt until eos or max_new_tokens; the eos is not part of the result. All prompts run
  // at once. No prompt may be empty.
  std::vector<std::vector<int32_t>> generate(std::span<const std::vector<int32_t>> prompts, int64_t max_new_tokens,
                                             int32_t eos_id);

  int64_t num_updates() const { return num_updates_; }
  void set_num_updates(int64_t n) { num_updates_ = n; }  // on resume

  // Runs the largest of each kind of work once, on the counting device, where token ids do not matter.
  void rehearse(const WorkBounds& work);
  // Bytes of stack that the work needs, found by rehearsing it.
  static int64_t activation_bytes(const ModelConfig& config, const EngineOptions& options, const WorkBounds& work);

 private:
  struct UnitStorage {
    Buffer parameters, gradients, m, v;
  };

  ParameterViews views_of(const Buffer& buffer, int64_t unit) const;
  View flat(const Buffer& buffer, int64_t unit) const;
  void prepare_with_stack(const WorkBounds& work, int64_t stack_bytes);
  Frame frame(const Batch& batch, bool training);
  Batch upload(const PackedBatch& batch, uint64_t first_sequence);
  void zero_gradients();
  void forward_backward(const Batch& batch, double scale);
  View run_blocks(Frame& frame);
  double gradient_norm();
  double read_f64(View scalar);

  Device& device_;
  EngineOptions options_;
  std::unique_ptr<Kernels> ops_;
  Model model_;
  std::vector<UnitStorage> units_;
  WorkBounds work_;
  std::unique_ptr<Stack> stack_;
  Buffer batch_buffer_;
  Buffer scalars_;  // [2] f64: loss sum, gradient's sum of squares
  int64_t num_updates_ = 0;
};

}  // namespace tessera
