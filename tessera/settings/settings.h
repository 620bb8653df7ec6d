// The values of all settings. Their declarations (setting.h, declarations/) give their names, meanings and rules.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/base/dtype.h"
#include "tessera/data/data_use.h"
#include "tessera/data/examples.h"
#include "tessera/data/prompts.h"
#include "tessera/data/scoring.h"
#include "tessera/engine/recomputation.h"
#include "tessera/engine/shard_plan.h"
#include "tessera/model/adapter.h"
#include "tessera/optim/adamw.h"
#include "tessera/optim/loss_scaler.h"
#include "tessera/optim/schedule.h"

namespace tessera {

// A number of steps, or a fraction (between 0 and 1) of all steps of a run.
struct StepCount {
  StepCount(int64_t count = 0) : steps(count) {}  // NOLINT: implicit, because most values are a number of steps
  int64_t steps;
  double fraction = 0;  // if it is not 0, it replaces `steps`
  bool is_given() const { return steps > 0 || fraction > 0; }
  // The number of steps in a run of `all_steps` steps. Rounds a fraction up, as the Trainer does.
  int64_t of(int64_t all_steps) const;
  bool operator==(const StepCount&) const = default;
};

// The trackers of a run.
struct TrackerChoice {
  bool tensorboard = false, wandb = false;
};

// Where a run logs memory over time, and how often.
struct MemoryLogPlace {
  std::string folder;     // empty: no logs
  double interval_s = 5;  // between two samples

  bool operator==(const MemoryLogPlace&) const = default;
};

// The values that a verb uses. An empty text means that nothing was given. A zero may have a special meaning; see the
// help text.
struct Settings {
  enum class Init { pretrained, random };
  enum class Adapter { none, lora };
  enum class BaseDtype { automatic, nf4 };
  enum class FuseMicroBatches { automatic, off };
  using OptimizerStates = tessera::OptimizerStates;
  enum class Precision { automatic, fp32, tf32, fp16, bf16 };
  enum class DeviceChoice { automatic, cpu, cuda };
  enum class InstructionSet { automatic, x86_64_v2, x86_64_v3, x86_64_v4 };
  enum class Interval { no, epoch, steps };
  enum class Metric { eval_loss, exact_match, f1 };
  enum class Progress { automatic, on, off };
  enum class LogFormat { automatic, trainer, json };
  enum class Gguf { none, automatic, f32, f16, bf16, q8_0 };
  enum class Stream { automatic, on, off };
  enum class Preflight { none, nettest };
  enum class ReportFormat { table, markdown, csv, json };
  enum class ReportTables { comparison, workshop };
  enum class Efficiency { automatic, strong, weak, workshop };

  // model
  std::string model, tokenizer, eos_token;
  Init init = Init::pretrained;
  bool resize_embeddings = false;
  int64_t vocab_size = 0, hidden_size = 512, num_layers = 6, num_heads = 8, ff_dim = 2048;
  bool tie_word_embeddings = true;
  double dropout = 0.1;
  // adapter
  Adapter adapter = Adapter::none;
  std::vector<std::string> init_adapter;  // folders; more than one only in eval and generate
  BaseDtype base_dtype = BaseDtype::automatic;
  int64_t lora_r = 16;
  double lora_alpha = 32, lora_dropout = 0;
  bool use_rslora = false;
  std::vector<std::string> lora_target_modules, lora_exclude_modules, lora_layers, lora_rank_pattern,
      lora_alpha_pattern, modules_to_save;
  AdaptedBiases lora_bias = AdaptedBiases::none;
  bool merge = false;
  // data
  std::vector<std::string> dataset, eval_dataset;  // paths of files
  TextRows txt_rows = TextRows::file;
  RowKind dataset_format = RowKind::automatic;
  FieldNames fields;
  double eval_fraction = 0;  // 0: none
  // Where tokenized training data are kept: "auto" (large data, in the user's folder for caches), "off", or a folder.
  std::string data_cache = "auto";
  int64_t train_size = 0, train_size_per_rank = 0, eval_size = 0;
  std::optional<RowOrder> subset;  // unset: depends on `shuffle`
  bool shuffle = true;
  Objective objective = Objective::completion;
  int64_t max_length = 512;
  Truncation truncation = Truncation::context;
  LongTexts long_texts = LongTexts::split;
  BadRows bad_rows = BadRows::skip;
  double max_bad_rows = 0.1;
  bool append_eos = true;
  LossOn loss_on = LossOn::assistant;
  std::string chat_template, template_date;
  int64_t show_loss = 0;  // samples to show
  std::string unanswerable_text = kNoAnswer;
  // training
  std::string experiment;
  // After resolution, exactly one of these two settings is positive. With batch_size, a micro-batch has this number of
  // samples. With batch_tokens, it is filled with complete samples up to this number of tokens.
  int64_t batch_size = 4, batch_tokens = 0;
  int64_t grad_accum = 1;
  double epochs = 3.0;
  int64_t max_steps = 0;
  std::string freeze;
  double lr = 5e-5, weight_decay = 0.01, beta1 = 0.9, beta2 = 0.999, adam_epsilon = 1e-8, max_grad_norm = 1.0;
  int64_t max_skipped_updates = 3;
  bool stop_on_divergence = true;
  Schedule lr_schedule = Schedule::linear;
  StepCount warmup_steps;
  double warmup_ratio = 0.0;
  Warmup warmup_type = Warmup::linear;
  double warmup_min_lr = 0.0;
  int64_t lr_decay_steps = 0;
  double min_lr = 0, min_lr_rate = 0;
  double lr_num_cycles = 0, lr_power = 1;
  int64_t lr_timescale = 0;
  StepCount num_decay_steps;
  Decay decay_type = Decay::cosine;
  OptimizerStates optimizer_states = OptimizerStates::fp32;
  enum class MatmulPrecision { as_precision, fp8 };
  MatmulPrecision matmul_precision = MatmulPrecision::as_precision;
  enum class GatherDtype { automatic, fp8 };
  GatherDtype gather_dtype = GatherDtype::automatic;
  Recomputation activation_checkpointing;
  FuseMicroBatches fuse_micro_batches = FuseMicroBatches::automatic;
  bool cuda_graphs = true;
  StepCount logging_steps = 10;
  TrackerChoice tracker;
  std::string tracker_dir;
  Interval eval_strategy = Interval::epoch;
  StepCount eval_steps;
  bool eval_before = false;
  // checkpoints
  std::string resume = "auto";
  Interval save_strategy = Interval::epoch;
  bool overwrite = false;
  double owner_timeout = 180;  // s
  StepCount save_steps;
  int64_t save_total_limit = 2;
  bool load_best_model_at_end = false;
  Metric metric_for_best_model = Metric::eval_loss;
  std::optional<DType> save_dtype;         // unset: as loaded
  int64_t max_shard_size = 5'000'000'000;  // bytes
  bool save_async = false;
  // evaluation and generation
  int64_t eval_batch_size = 8, max_new_tokens = 50;
  bool eval_generation = false;
  Scoring scoring = Scoring::official;
  bool special_tokens = true;
  std::string prompt, question, context, prompts, system;
  bool do_sample = false;
  double temperature = 1.0, top_p = 1.0;
  int64_t top_k = 0;
  std::vector<std::string> stop;  // strings that end a text
  Stream stream = Stream::automatic;
  // machine
  int64_t seed = 42;
  Precision precision = Precision::automatic;
  std::string precision_reason;  // why `auto` became `precision` (settle_precision()); empty if it did not
  DeviceChoice device = DeviceChoice::automatic;
  int64_t threads = 0;
  InstructionSet instruction_set = InstructionSet::automatic;
  // settings of the Hugging Face Trainer that only set other settings, or are only checked
  bool fp16 = false, bf16 = false, gradient_checkpointing = false;
  std::string optim = "adamw_torch", report_to = "none", fsdp_config, lr_scheduler_kwargs;
  // ranks
  int64_t nproc = 0;
  double comm_timeout = 600;  // s
  int64_t max_restarts = 0;
  double restart_pause = 5;  // s
  // sharding
  std::string deepspeed, fsdp;
  ShardingStrategy strategy = ShardingStrategy::no_shard;
  int64_t shard_group_size = 0, ranks_per_node = 0;
  BackwardPrefetch backward_prefetch = BackwardPrefetch::pre;
  bool forward_prefetch = false;
  int64_t max_units_in_flight = 2;
  bool sync_module_states = false;
  Offload offload;
  std::string offload_dir;
  int64_t device_updates = 0;  // percent
  bool pin_memory = true;      // used only if something is offloaded from a GPU
  // reduction of gradients over ranks, and the loss scale of fp16
  GradientSync grad_sync = GradientSync::automatic;
  int64_t reduce_bucket_size = 25 << 20;  // bytes
  std::optional<DType> reduce_dtype;      // unset: see gradient_dtype()
  double loss_scale = 0;
  LossScaleRules loss_scale_rules = LossScaleRules::grad_scaler;
  int64_t initial_scale_power = 16, loss_scale_window = 0, loss_scale_hysteresis = 0;
  double min_loss_scale = 1;
  // plan
  static constexpr int64_t kThisMachine = -1;  // a value of `fit`: the memory of this machine
  bool categories = false;
  std::vector<std::string> compare;
  int64_t fit = 0, device_memory = 0;  // bytes per rank
  int64_t host_memory = 0, disk = 0;   // bytes per node
  std::string machine;                 // a file; empty: this machine
  std::string svg;                     // the file of the picture of a plan; empty: none
  bool measure = false;
  // nettest, preflight and doctor
  std::vector<std::string> collective = {"all_reduce"};  // words of all_collectives()
  std::vector<int64_t> sizes;                            // bytes; empty: from min_bytes to max_bytes
  int64_t min_bytes = 0, max_bytes = 0;                  // bytes; 0: see the help text
  int64_t step_factor = 2;
  int64_t net_warmup = 20, net_iterations = 50;
  std::optional<DType> net_dtype;                 // unset: the type of `precision`
  double min_busbw = 0, preflight_min_busbw = 0;  // GB/s
  bool pairs = false, workshop_exit_codes = false;
  Preflight preflight = Preflight::none;
  std::string shared;
  // Slurm's job files
  int64_t nodes = 1, gpus_per_node = 0, ntasks_per_node = 0, cpus_per_task = 0;
  std::string time, partition, account, constraint, mem, job_name, module, container;
  bool requeue = true;
  int64_t max_requeues = 20;
  int64_t signal_before = 300;  // s
  std::string job_file;
  bool replace = false, submit = false;
  int64_t max_jobs = 1;
  // output
  std::string output_dir, output, checkpoint;
  Gguf gguf = Gguf::none;
  MemoryLogPlace memory_log;
  bool json = false, dry_run = false;
  Progress progress = Progress::automatic;
  LogFormat log_format = LogFormat::automatic;
  // report
  std::string rows, columns, baseline, sort, html;
  ReportFormat format = ReportFormat::table;
  ReportTables tables = ReportTables::comparison;
  Efficiency efficiency = Efficiency::automatic;

  // the verb `memory`
  bool gpu_only = false, cpu_only = false;

  // Whether a training run has data to evaluate on.
  bool has_eval_data() const { return !eval_dataset.empty() || eval_fraction > 0; }
  // Whether to show progress bars. nullopt if this depends on the terminal.
  std::optional<bool> bars() const {
    return progress == Progress::automatic ? std::nullopt : std::optional(progress == Progress::on);
  }
  // "4 x 2 samples", or "up to 8192 x 2 tokens": the size of a micro-batch times the number of micro-batches per step.
  std::string batch_words() const;
  // The options of loss scaling in fp16. If the window or the hysteresis is 0, it gets the default that belongs to
  // loss_scale_rules.
  LossScaleOptions loss_scaling() const;
};

}  // namespace tessera
