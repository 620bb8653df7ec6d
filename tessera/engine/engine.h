// The engine holds a rank's part of a model on a device. It runs steps, evaluations and generations on this device. The
// order of this work depends only on the sizes of arrays, not on their values. To plan a run, the same code therefore
// runs on the counting device, which counts memory and computes nothing.
//
// With more than one rank, every public call that computes is collective: all ranks must make the same calls.
//
// Letters: B sequences, N tokens, C channels, L blocks, V tokens in the vocabulary.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tessera/data/batches.h"
#include "tessera/device/stack.h"
#include "tessera/engine/block_graphs.h"
#include "tessera/engine/own_loss.h"
#include "tessera/engine/recomputation.h"
#include "tessera/engine/states.h"
#include "tessera/engine/step_parts.h"

namespace tessera {

struct EngineOptions {
  DType dtype = DType::f32;  // type of the computation; f64 in gradient checks
  bool tf32 = false;         // f32 products on a GPU may round their factors to tf32
  bool float8 = false;       // training rounds the factors of the blocks' products to 8 bits (base/float8.h)
  Recomputation recomputation;
  AdamWOptions adamw;
  OptimizerStates optimizer_states = OptimizerStates::fp32;
  double max_grad_norm = 0;  // 0: no clipping
  uint64_t seed = 0;         // for dropout and stochastic rounding
  bool cuda_graphs = true;   // on a GPU, launch blocks as CUDA graphs; this does not change any bit of the results
  // The head computes logits in chunks of tokens, one chunk at a time. This value limits the size of a chunk's logits.
  // With the default, the matrix products of a chunk run at nearly full speed, and a chunk is small compared with a
  // model. On a GPU, the logits of a chunk can be larger than this value (Head::chunk_rows). The reason: the backward
  // of each chunk reads and writes the complete gradient of the head's weight, and on a GPU this takes a larger share
  // of the time.
  int64_t head_chunk_bytes = 128 << 20;
  ShardOptions sharding;
  std::vector<std::string> frozen;  // patterns for the names of tensors that training does not change (Model)
};

// The place where an engine works: the device, the host memory for offloaded arrays (a host device with its own
// ledger), and the ranks. The two devices and the communicator must outlive the engine.
struct EnginePlace {
  Device& device;
  Device& host;
  Communicator& world;
  int ranks_per_node = 1;
};

// Upper bounds of a micro-batch. They determine the memory of a run.
struct BatchBounds {
  int64_t num_tokens = 0, num_sequences = 0, num_targets = 0;
  // Not a bound: the length of a token's sequence, averaged over all tokens, for the FLOPs of attention. 0: all
  // sequences have the same length.
  int64_t mean_length = 0;
};
// Returns true if the kernels support micro-batches up to these bounds (the limits are in ops/kernels.h).
bool is_supported(const BatchBounds& bounds, const ModelConfig& config);

// A batch of this size for the counting device: its ids mean nothing.
PackedBatch imagined_batch(const BatchBounds& bounds);

// Upper bounds of the work that a run will give to the engine. If num_tokens of training, evaluation or generation is
// 0, the run has no work of this kind.
struct WorkBounds {
  BatchBounds training, evaluation, generation;  // generation: the prompts that are read together
  int64_t max_new_tokens = 0;                    // per prompt
  int64_t micro_batches = 1;                     // per training step, on this rank
};

struct GenerationOptions {
  int64_t max_new_tokens = 0;
  int32_t eos_id = -1;                 // ends a text, like ModelConfig::more_end_ids. −1: only more_end_ids
  std::optional<Sampling> sampling{};  // empty: the most likely token (greedy)
  // The seed of the random draws. A generated token depends on the seed, the number of its prompt, its position and the
  // logits. It does not depend on other prompts or ranks.
  uint64_t seed = 0;
  int64_t first_number = 0;  // the number of this call's first prompt; the next prompts have the next numbers
  // Called for every token of the result, as soon as it is known, with the number of its prompt. If it returns false,
  // the text of this prompt ends with this token.
  std::function<bool(int64_t prompt, int32_t id)> on_token{};
};

struct StepResult {     // each value covers all ranks
  double loss_sum = 0;  // sum of the losses of the step's targets
  int64_t num_targets = 0, num_tokens = 0, num_sequences = 0;
  double gradient_norm = 0;  // norm of the gradient of the mean loss, before clipping; NaN without a target
  // true: nothing was updated. Either the step has no target, or the loss or the norm is not finite, or the norm after
  // clipping is too large (may_update()).
  bool skipped = false;
  // The mean over the targets. NaN without a target.
  double loss() const { return loss_sum / static_cast<double>(num_targets); }
};

// Functions that watch the work of steps. They are called in the order of the compute stream.
struct StepWatch {
  std::function<void(StepPart)> on_part{};               // the part begins
  std::function<void(int64_t height_bytes)> on_stack{};  // the height of the activation stack has changed
};

struct LossSum {
  double loss_sum = 0;
  int64_t num_targets = 0;
};

class Engine {
 public:
  // Allocates the parameters with unspecified contents. Throws UsageError if the sharding does not fit the world, or if
  // the model has fewer blocks than a number in `recomputation`.
  Engine(EnginePlace place, ModelConfig config, EngineOptions options);
  ~Engine();  // waits for an update that is still running

  const Model& model() const { return model_; }
  Device& device() { return context_.device; }
  Device& host() { return context_.host; }
  Kernels& ops() { return *ops_; }
  const ShardPlan& shard_plan() const { return context_.plan; }
  const EngineOptions& options() const { return options_; }
  RecomputedBlocks recomputed_blocks() const {
    return {std::max<int64_t>(0, model_.first_trained() - 1), options_.recomputation};
  }
  // Bytes that this rank has sent to other ranks.
  int64_t bytes_sent() const;
  // The part of bytes_sent() that this rank sent in groups whose ranks are all on one node.
  int64_t bytes_sent_within_nodes() const;

  // Bytes of this rank's files for offloaded arrays.
  int64_t file_bytes() const { return context_.file_bytes; }

  // Peak bytes of the head on the activation stack since the previous call of this function.
  int64_t take_head_peak_bytes() { return stack_->take_measured_peak_bytes(); }

  // Allocates what the work needs: activations and, for training, gradients and optimizer states (zeroed). Throws
  // UsageError if a batch has more tokens or sequences than the kernels accept.
  void prepare(const WorkBounds& work);

  // From now on, training and evaluation use this loss instead of the cross-entropy. `kernels` computes in host memory
  // and must outlive the engine.
  void set_loss(LossOfRows loss, Kernels& kernels) { loss_of_rows_.emplace(device(), kernels, std::move(loss)); }

  void use_cross_entropy() { loss_of_rows_.reset(); }
  bool has_own_loss() const { return loss_of_rows_.has_value(); }

  // The parameters and the optimizer states. Valid until the next prepare().
  UnitStates states() { return {context_, parameters_, optimizer_.get(), stack_.get()}; }

  // ---- work

  // Runs one training step. `window` contains this rank's micro-batches of the step. All ranks pass the same number of
  // micro-batches. Computes the gradients of the loss, which is the mean over the targets in the windows of all ranks.
  // Then clips the gradients and runs AdamW's update. Updates are numbered from 1: after the first update,
  // num_updates() is 1. Backward multiplies the loss by `loss_scale`, which is 1 except in f16. All ranks use the same
  // loss and the same gradient norm. If the loss or the norm is not finite, or the norm after clipping is too large
  // (may_update()), no rank updates anything. A step without a target on any rank computes and updates nothing.
  StepResult train_step(std::span<const PackedBatch> window, double learning_rate, double loss_scale = 1);

  // Returns the loss of this rank's batch, summed over its targets. The batch may be empty.
  LossSum evaluate(const PackedBatch& batch);
  // Continues each of this rank's prompts until it ends with an end-of-text token or has max_new_tokens new tokens.
  // The result contains only the new tokens, without the end-of-text token. All prompts run together. No prompt may be
  // empty.
  std::vector<std::vector<int32_t>> generate(std::span<const std::vector<int32_t>> prompts,
                                             const GenerationOptions& options);

  // The times of the parts of steps. On a GPU, they are not measured.
  const StepParts& parts() const { return parts_; }

  int64_t num_updates() const { return num_updates_; }
  void set_num_updates(int64_t n) { num_updates_ = n; }  // on resume

  // ---- for the plan

  // Runs the largest work of each kind once. The training step has `num_micro_batches`. Only for the counting device,
  // where token ids do not matter.
  void rehearse(const WorkBounds& work, int64_t num_micro_batches = 1);
  // Calls these functions from now on, until the next prepare(). Only for counting devices.
  void watch(StepWatch watch);

 private:
  friend struct EngineProbe;  // tests/unit/engine/engine_probe.h

  struct UploadBuffer {
    Buffer host;
    Event sent;  // after the upload; `host` may then be written again
  };

  static EngineContext make_context(const EnginePlace& place, const Model& model, const EngineOptions& options,
                                    Kernels& ops, std::unique_ptr<Kernels>& host_ops);
  struct Needs {
    int64_t stack_bytes, scratch_bytes;
  };
  Needs needs_of(const WorkBounds& work) const;
  void prepare_with_stack(const WorkBounds& work, int64_t stack_bytes);
  Frame frame(const Batch& batch, bool training);
  int64_t padding(int64_t num_tokens, bool training) const;
  Batch upload(const PackedBatch& batch, bool training);
  StepResult count(std::span<const PackedBatch> window);
  void accumulate(std::span<const PackedBatch> window, const StepResult& counts, double loss_scale);
  void forward_backward(const PackedBatch& packed, double scale);
  View run_blocks(Frame& frame, int64_t num_tokens);
  // Throws if parameters could not be loaded or gathered.
  void check_gathering();
  double read_f64(View scalar);
  void begin_part(StepPart part);
  void in_compute_order(std::function<void()> work);
  bool counting() const { return context_.device.kind() == DeviceKind::counting; }

  const EngineOptions options_;
  const int ranks_per_node_;
  std::unique_ptr<Kernels> ops_, own_host_ops_;
  Model model_;
  EngineContext context_;
  UnitParameters parameters_;
  std::unique_ptr<UnitGradients> gradients_;  // while training
  std::unique_ptr<UnitOptimizer> optimizer_;
  WorkBounds work_;
  std::unique_ptr<Stack> stack_;
  UploadBuffer uploads_[2];
  int next_upload_ = 0;
  Buffer batch_;  // the arrays of the current micro-batch
  BlockGraphs block_graphs_;
  Buffer loss_;                           // [1] f64
  std::optional<HostLoss> loss_of_rows_;  // from set_loss()
  StepParts parts_;
  StepWatch watch_;
  int64_t num_updates_ = 0;
  bool first_step_ = true;  // this engine has not completed a step yet
  bool rehearsing_ = false;
};

}  // namespace tessera
