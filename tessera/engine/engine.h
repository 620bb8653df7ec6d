// The engine: holds a rank's part of a model on a device and runs steps, evaluations and generations on it, in an order
// that depends on sizes alone. On the counting device the same code is the plan of a run.
//
// Under more than one rank every public call that computes is collective: all ranks make the same calls.
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
#include "tessera/engine/optimizer.h"

namespace tessera {

struct EngineOptions {
  DType dtype = DType::f32;        // of the computation; f64 in gradient checks
  bool tf32 = false;               // f32 products on a GPU may round their factors to tf32
  bool checkpoint_blocks = false;  // keep only the blocks' inputs and run each block's forward again in backward
  AdamWOptions adamw;
  double max_grad_norm = 0;  // 0: no clipping
  uint64_t seed = 0;         // of dropout
  bool cuda_graphs = true;   // on a GPU blocks are launched as graphs, which changes no bit
  // Of logits that exist at a time: large enough that a product over the vocabulary is near the machine's speed, small
  // beside a model. The gradient of the embedding is read and written whole for each chunk, which a GPU's faster
  // products feel sooner: there chunks grow with the activations (Root::chunk_rows).
  int64_t head_chunk_bytes = 128 << 20;
  ShardOptions sharding;
};

// Where an engine works: the device, the memory of the host tier (a device of the host with a ledger of its own), and
// the ranks. All must outlive it.
struct EnginePlace {
  Device& device;
  Device& host;
  Communicator& world;
  int ranks_per_node = 1;
};

// Upper bounds of a micro-batch, from which all memory follows.
struct BatchBounds {
  int64_t num_tokens = 0, num_sequences = 0, num_targets = 0;
};

// What a run will ask of the engine; a bound with no tokens means "never".
struct WorkBounds {
  BatchBounds training, evaluation, generation;  // generation: tokens of the prompts read at once
  int64_t max_new_tokens = 0;
  int64_t micro_batches = 1;  // of a training step
};

struct StepResult {     // over all ranks
  double loss_sum = 0;  // over the targets of the step
  int64_t num_targets = 0, num_tokens = 0, num_sequences = 0;
  double gradient_norm = 0;  // before clipping, of the mean loss
  bool skipped = false;      // loss or gradients were not finite (may_update()): nothing was updated
  double loss() const { return num_targets ? loss_sum / static_cast<double>(num_targets) : 0; }
};

struct LossSum {
  double loss_sum = 0;
  int64_t num_targets = 0;
};

// What a checkpoint holds of a unit: arrays of its table's elements, in the type of the masters.
enum class StateKind { parameters, moment1, moment2 };
inline constexpr StateKind kStateKinds[] = {StateKind::parameters, StateKind::moment1, StateKind::moment2};

class Engine {
 public:
  // Allocates the parameters, with contents unspecified. UsageError: a world that the sharding does not fit.
  Engine(EnginePlace place, ModelConfig config, EngineOptions options);
  ~Engine();  // waits for an update that is under way

  const Model& model() const { return model_; }
  Device& device() { return place_.device; }
  Device& host() { return place_.host; }
  Kernels& ops() { return *ops_; }
  const ShardPlan& shard_plan() const { return place_.plan; }
  const EngineOptions& options() const { return options_; }
  // Blocks that have been launched as graphs.
  int64_t num_graph_launches() const { return block_graphs_.num_launches(); }
  // Bytes that this rank has sent to others.
  int64_t bytes_sent() const;
  // Those of them that went to groups of ranks that lie within one node.
  int64_t bytes_sent_within_nodes() const;

  // Bytes of the files that this rank offloads to.
  int64_t file_bytes() const { return place_.file_bytes; }

  // The most that the head has had on the activations' stack since the last call.
  int64_t take_head_peak_bytes() { return stack_->take_measured_peak_bytes(); }

  // Allocates what the work needs: activations, and gradients and optimizer states if it trains (states zeroed).
  // UsageError when a batch has more tokens or sequences than kernels take.
  void prepare(const WorkBounds& work);

  // ---- parameters and states (states.cc)

  // Reads elements `range` of a unit's flat buffer into a view of the host's memory, of any floating-point type.
  using ReadParameters = std::function<void(int64_t unit, ElemRange range, View to)>;
  using ReadState = std::function<void(StateKind kind, int64_t unit, ElemRange range, View to)>;
  using WriteState = std::function<void(StateKind kind, int64_t unit, ElemRange range, View from)>;

  // Fills every parameter with its architecture's initial distribution. The same seed gives the same bits, whatever the
  // sharding.
  void initialize_parameters(uint64_t seed);
  // Asks for what this rank keeps, and no more, unit by unit; or asks rank 0 alone, in pieces, and the others get
  // theirs from it. Collective then.
  void load_parameters(const ReadParameters& read, bool from_rank_0 = false);
  // The same with the optimizer's states.
  void load_states(const ReadState& read);
  // The elements of a unit that this rank writes to a checkpoint; over all ranks every element once.
  ElemRange saved_range(int64_t unit) const { return place_.plan.saved(place_.cut(unit)); }
  // Shows saved_range() of each unit and kind (parameters alone before prepare() for training), unless it is empty; an
  // array whole, or in pieces that follow each other.
  void save_states(const WriteState& write);

  // The first unit whose parameters, those of the optimizer if it trains, hold NaN or infinity on any rank, or nothing.
  // Takes no more memory than save_states(). Collective.
  std::optional<int64_t> find_non_finite_unit();

  using VisitParameters = std::function<void(int64_t unit, ElemRange range, View parameters)>;
  // Shows the first rank every unit's parameters [P] of the masters' type, in order, each whole or in pieces that
  // follow each other; valid until the next one. Collective.
  void collect_parameters(const VisitParameters& visit);

  // ---- work

  // One update from this rank's micro-batches of an accumulation window, as many on every rank: gradients of the summed
  // loss divided by the number of valid targets of the whole window over all ranks, clipped, AdamW. Updates are
  // numbered from 1 by num_updates(). In f16 the loss is multiplied by `loss_scale` on its way back. A loss or
  // gradients that are NaN or infinite on any rank update nothing on all of them.
  StepResult train_step(std::span<const PackedBatch> window, double learning_rate, double loss_scale = 1);
  // Accumulates the gradients of loss_scale times the mean loss alone: the step without clipping and update.
  StepResult accumulate_gradients(std::span<const PackedBatch> window, double loss_scale = 1);

  // Of this rank's batch, which may be empty.
  LossSum evaluate(const PackedBatch& batch);
  // Logits [N, V] (host, in options().dtype) of every token: small inputs only.
  void logits(const PackedBatch& batch, void* host);

  // Greedy continuation of each of this rank's prompts until eos or max_new_tokens; the eos is not part of the result.
  // All prompts run at once. No prompt may be empty.
  std::vector<std::vector<int32_t>> generate(std::span<const std::vector<int32_t>> prompts, int64_t max_new_tokens,
                                             int32_t eos_id);

  int64_t num_updates() const { return num_updates_; }
  void set_num_updates(int64_t n) { num_updates_ = n; }  // on resume

  // ---- for tests: flat buffers of a world of one without offloading

  ParameterViews parameters(int64_t unit) const;
  ParameterViews gradients(int64_t unit) const { return gradients_->whole(unit); }

  // Runs the largest of each kind of work once, on the counting device, where token ids do not matter: a step of so
  // many micro-batches.
  void rehearse(const WorkBounds& work, int64_t num_micro_batches = 1);

 private:
  struct UploadBuffer {
    Buffer host;
    Event sent;  // it may be written again
  };

  static Workplace make_workplace(const EnginePlace& place, const Model& model, const EngineOptions& options,
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
  // Throws where parameters could not be brought.
  void check_gathering();
  double read_f64(View scalar);
  bool counting() const { return place_.device.kind() == DeviceKind::counting; }
  void finish_update();
  void load_from_rank_0(const ReadParameters& read);
  void parameters_changed();
  bool visible(const Shelf& shelf) const;
  // Memory of the device for arrays on their way between steps: the stack's, which is idle then and theirs until the
  // object goes, as far as there is room, else their own.
  class Passage {
   public:
    explicit Passage(Engine& engine);
    View take(int64_t elems, DType dtype);
    // As many as the stack has room for, `most` at most.
    View take_free(int64_t most, DType dtype);

   private:
    Engine& engine_;
    std::optional<StackScope> scope_;
    std::vector<Buffer> own_;
  };
  void load_shelf(const Shelf& shelf, int64_t unit, ElemRange range, int64_t first,
                  const std::function<void(ElemRange, View)>& read);
  using Write = std::function<void(ElemRange range, View from)>;
  void save_shelf(const Shelf& shelf, int64_t unit, ElemRange range, int64_t first, const Write& write);
  // Shows elements `range` of a unit, of those that this rank keeps, as save_states() does.
  void save_parameters(int64_t unit, ElemRange range, const Write& write);
  void join_masters(int64_t unit, int64_t first, View masters);
  double sum_of_squared_parameters(int64_t unit);

  const EngineOptions options_;
  const int ranks_per_node_;
  std::unique_ptr<Kernels> ops_, own_host_ops_;
  Model model_;
  Workplace place_;
  UnitParameters parameters_;
  std::unique_ptr<UnitGradients> gradients_;  // while training
  std::unique_ptr<UnitOptimizer> optimizer_;
  WorkBounds work_;
  std::unique_ptr<Stack> stack_;
  UploadBuffer uploads_[2];
  int next_upload_ = 0;
  Buffer batch_;  // the arrays of the micro-batch that is computed
  BlockGraphs block_graphs_;
  Buffer loss_;  // [1] f64
  int64_t num_updates_ = 0;
  bool first_step_ = true;  // no step has been done since this was made
  bool rehearsing_ = false;
};

}  // namespace tessera
