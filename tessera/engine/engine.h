// The engine holds a rank's part of a model on a device. It runs steps, evaluations and generations on this device. The
// order of its work depends only on sizes. On the counting device the same code computes the plan of a run.
//
// With more than one rank, every public call that computes is collective: all ranks make the same calls.
//
// Letters: B sequences, N tokens, C channels, L blocks, M rows with loss, P elements of a unit.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "tessera/data/batches.h"
#include "tessera/device/stack.h"
#include "tessera/engine/block_graphs.h"
#include "tessera/engine/checkpointed_blocks.h"
#include "tessera/engine/optimizer.h"

namespace tessera {

struct EngineOptions {
  DType dtype = DType::f32;         // of the computation; f64 in gradient checks
  bool tf32 = false;                // f32 products on a GPU may round their factors to tf32
  int64_t checkpointed_blocks = 0;  // this number of blocks, or kAllBlocks (checkpointed_blocks.h)
  AdamWOptions adamw;
  // AdamW's moments are bf16, and the parameters have no fp32 masters: AdamW updates the bf16 parameters. All three are
  // rounded stochastically (ops/stochastic_rounding.h). Only for a computation in bf16.
  bool bf16_states = false;
  double max_grad_norm = 0;  // 0: no clipping
  uint64_t seed = 0;         // of dropout and of stochastic rounding
  bool cuda_graphs = true;   // launch a GPU's blocks as CUDA graphs; the results have the same bits
  // Bytes of logits that exist at a time. Large enough for a product over the vocabulary at nearly full speed, and
  // small compared with a model. Each chunk reads and writes the complete gradient of the embedding. This costs
  // relatively more on a GPU, where chunks therefore grow with the activations (Head::chunk_rows).
  int64_t head_chunk_bytes = 128 << 20;
  ShardOptions sharding;
};

// The place where an engine works: the device, the memory of the host tier (a host device with its own ledger), and the
// ranks. All of them must outlive the engine.
struct EnginePlace {
  Device& device;
  Device& host;
  Communicator& world;
  int ranks_per_node = 1;
};

// Upper bounds of a micro-batch. They determine the memory of a run.
struct BatchBounds {
  int64_t num_tokens = 0, num_sequences = 0, num_targets = 0;
  // Not a bound: the length of the sequence of an average token, for the FLOPs of attention. 0: all sequences have the
  // same length.
  int64_t mean_length = 0;
};

// The work that a run will ask of the engine. A bound with no tokens means "never".
struct WorkBounds {
  BatchBounds training, evaluation, generation;  // generation: tokens of the prompts that are read together
  int64_t max_new_tokens = 0;
  int64_t micro_batches = 1;  // of a training step
};

struct GenerationOptions {
  int64_t max_new_tokens = 0;
  int32_t eos_id = -1;                 // ends a text, as do the more_end_ids of the configuration; −1: none
  std::optional<Sampling> sampling{};  // empty: the most likely token (greedy)
  // Of the draws. A token depends on the seed, the number of its prompt and its position, and on the logits. It does
  // not depend on the other prompts or ranks.
  uint64_t seed = 0;
  int64_t first_number = 0;  // the number of this call's first prompt; the others follow
  // Called for every token of the result, as soon as it is known, with the prompt's index in this call.
  std::function<void(size_t prompt, int32_t id)> on_token{};
};

struct StepResult {     // over all ranks
  double loss_sum = 0;  // over the targets of the step
  int64_t num_targets = 0, num_tokens = 0, num_sequences = 0;
  double gradient_norm = 0;  // before clipping, of the mean loss
  bool skipped = false;      // loss or gradients were not finite (may_update()), so nothing was updated
  double loss() const { return num_targets ? loss_sum / static_cast<double>(num_targets) : 0; }
};

struct LossSum {
  double loss_sum = 0;
  int64_t num_targets = 0;
};

// What a checkpoint holds for a unit, in the type of the states. `frozen` has the elements of the frozen part of the
// unit's table. The other arrays have the elements of the trainable part.
enum class StateKind { parameters, moment1, moment2, frozen };
inline constexpr StateKind kStateKinds[] = {StateKind::parameters, StateKind::moment1, StateKind::moment2,
                                            StateKind::frozen};
inline int64_t num_elems_of(StateKind kind, const ParameterTable& table) {
  return kind == StateKind::frozen ? table.num_frozen() : table.num_trainable();
}

class Engine {
 public:
  // Allocates the parameters with unspecified contents. UsageError: the sharding does not fit the world, or the model
  // has fewer blocks than checkpointed_blocks.
  Engine(EnginePlace place, ModelConfig config, EngineOptions options);
  ~Engine();  // waits for an update that is still running

  const Model& model() const { return model_; }
  Device& device() { return context_.device; }
  Device& host() { return context_.host; }
  Kernels& ops() { return *ops_; }
  const ShardPlan& shard_plan() const { return context_.plan; }
  const EngineOptions& options() const { return options_; }
  CheckpointedBlocks checkpointed_blocks() const {
    return {std::max<int64_t>(0, model_.first_trained() - 1), options_.checkpointed_blocks};
  }
  // Number of blocks launched as graphs so far.
  int64_t num_graph_launches() const { return block_graphs_.num_launches(); }
  // Bytes that this rank has sent to others.
  int64_t bytes_sent() const;
  // The part of these bytes that went to groups of ranks within one node.
  int64_t bytes_sent_within_nodes() const;

  // Bytes of this rank's files for offloaded arrays.
  int64_t file_bytes() const { return context_.file_bytes; }

  // Peak bytes of the head on the activation stack since the last call.
  int64_t take_head_peak_bytes() { return stack_->take_measured_peak_bytes(); }

  // Allocates what the work needs: activations and, for training, gradients and optimizer states (zeroed). UsageError:
  // a batch has more tokens or sequences than the kernels accept.
  void prepare(const WorkBounds& work);

  // ---- parameters and states (states.cc)

  // The type of masters and moments, as save_states() passes them when training: f32, or bf16 for bf16 states.
  DType state_dtype() const { return context_.state_dtype(); }

  // Reads elements `range` of a unit's flat buffer, or of a StateKind, into a view in host memory, of any
  // floating-point type.
  using ReadParameters = std::function<void(int64_t unit, ElemRange range, View to)>;
  using ReadState = std::function<void(StateKind kind, int64_t unit, ElemRange range, View to)>;
  using WriteState = std::function<void(StateKind kind, int64_t unit, ElemRange range, View from)>;

  // Fills every parameter from its architecture's initial distribution. The same seed gives the same bits with any
  // sharding.
  void initialize_parameters(uint64_t seed);
  // Calls `read` unit by unit, only for the elements that this rank keeps. With `from_rank_0`, rank 0 alone reads, in
  // pieces, and sends the others their elements. The call is then collective.
  void load_parameters(const ReadParameters& read, bool from_rank_0 = false);
  // The same, with the optimizer's states. Without `with_moments`, only the parameters.
  void load_states(const ReadState& read, bool with_moments = true);
  // The elements of a unit that this rank writes to a checkpoint. Over all ranks, each element is written once.
  ElemRange saved_range(StateKind kind, int64_t unit) const {
    return context_.plan.saved(kind == StateKind::frozen ? context_.frozen_cut(unit) : context_.cut(unit));
  }
  // Calls `write` with saved_range() of each unit and kind, unless it is empty. An array comes complete, or in
  // consecutive pieces. Before prepare() for training, there are only parameters.
  void save_states(const WriteState& write);

  using WriteParameters = std::function<void(int64_t unit, ElemRange range, View from)>;
  // The same with the parameters alone.
  void save_parameters(const WriteParameters& write);

  // Returns the first unit whose parameters contain NaN or infinity on any rank, or nothing. When training, it checks
  // the masters. Uses no more memory than save_states(). Collective.
  std::optional<int64_t> find_non_finite_unit();

  // ---- work

  // One update from this rank's micro-batches of an accumulation window. All ranks pass the same number of
  // micro-batches. Computes the gradients of the mean loss over all valid targets of the window on all ranks, clips
  // them, and runs AdamW. num_updates() numbers updates from 1. In f16, backward multiplies the loss by `loss_scale`.
  // If the loss or the gradients are NaN or infinite on any rank, no rank updates anything.
  StepResult train_step(std::span<const PackedBatch> window, double learning_rate, double loss_scale = 1);
  // Accumulates the gradients of loss_scale times the mean loss, without clipping and update.
  StepResult accumulate_gradients(std::span<const PackedBatch> window, double loss_scale = 1);

  // The loss of this rank's batch, which may be empty.
  LossSum evaluate(const PackedBatch& batch);
  // Writes the logits [N, V] of every token to `host`, in options().dtype. For small inputs only.
  void logits(const PackedBatch& batch, void* host);

  // Continues each of this rank's prompts until an end-of-text token or max_new_tokens. The result does not contain the
  // end-of-text token. All prompts run together. No prompt may be empty.
  std::vector<std::vector<int32_t>> generate(std::span<const std::vector<int32_t>> prompts,
                                             const GenerationOptions& options);

  int64_t num_updates() const { return num_updates_; }
  void set_num_updates(int64_t n) { num_updates_ = n; }  // on resume

  // ---- for tests: flat buffers of a world of one rank without offloading

  ParameterViews parameters(int64_t unit) const;
  ParameterViews gradients(int64_t unit) const { return gradients_->whole(unit); }

  // Runs the largest work of each kind once, with a step of `num_micro_batches`. On the counting device only, where
  // token ids do not matter.
  void rehearse(const WorkBounds& work, int64_t num_micro_batches = 1);

 private:
  struct UploadBuffer {
    Buffer host;
    Event sent;  // the upload is done; `host` may be written again
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
  StepResult accumulate(std::span<const PackedBatch> window, double loss_scale);
  void forward_backward(const PackedBatch& packed, double scale);
  View run_blocks(Frame& frame, int64_t num_tokens);
  // Throws if parameters could not be loaded or gathered.
  void check_gathering();
  double read_f64(View scalar);
  bool counting() const { return context_.device.kind() == DeviceKind::counting; }
  void finish_update();
  void load_from_rank_0(const ReadParameters& read);
  void parameters_changed();
  bool visible(const UnitArrays& arrays) const;
  // Device memory for arrays that are transferred between steps. It comes from the stack, which is idle then, or from
  // an allocation if the stack is too small. Valid until the object is destroyed.
  class DeviceStaging {
   public:
    explicit DeviceStaging(Engine& engine);
    View take(int64_t elems, DType dtype);
    // As many elements as the stack has room for, at most `most`.
    View take_free(int64_t most, DType dtype);

   private:
    Engine& engine_;
    std::optional<StackScope> scope_;
    std::vector<Buffer> own_;
  };
  void load_array(const UnitArrays& arrays, int64_t unit, ElemRange range, int64_t first,
                  const std::function<void(ElemRange, View)>& read);
  using Write = std::function<void(ElemRange range, View from)>;
  void save_array(const UnitArrays& arrays, int64_t unit, ElemRange range, int64_t first, const Write& write);
  // Calls `write` with elements `range` of a unit, as save_states() does. This rank must keep them.
  void save_range(int64_t unit, ElemRange range, const Write& write);
  void save_frozen(int64_t unit, ElemRange range, const Write& write);
  void join_masters(int64_t unit, int64_t first, View masters);
  double sum_of_squared_parameters(int64_t unit);

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
  Buffer loss_;  // [1] f64
  int64_t num_updates_ = 0;
  bool first_step_ = true;  // this engine has not run a step yet
  bool rehearsing_ = false;
};

}  // namespace tessera
