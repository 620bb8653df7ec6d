// Every setting of Tessera, declared once. The declaration drives flags, configuration files, environment variables,
// help, validation and the printed configuration.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "tessera/base/dtype.h"
#include "tessera/data/data_use.h"
#include "tessera/data/examples.h"
#include "tessera/data/prompts.h"
#include "tessera/data/scoring.h"
#include "tessera/engine/checkpointed_blocks.h"
#include "tessera/engine/shard_plan.h"
#include "tessera/optim/loss_scaler.h"
#include "tessera/optim/schedule.h"
#include "tessera/settings/setting_words.h"

namespace tessera {

// The values that a verb uses. Their declarations (settings.cc, *_settings.cc) give their meanings and units. An empty
// text means that nothing was given. A zero may have a special meaning; see the help text.
struct Settings {
  enum class Init { pretrained, random };
  enum class FuseMicroBatches { automatic, off };
  enum class OptimizerStates { fp32, bf16 };
  enum class Precision { fp32, tf32, fp16, bf16 };
  enum class DeviceChoice { automatic, cpu, cuda };
  enum class Interval { no, epoch, steps };
  enum class Metric { eval_loss, exact_match, f1 };
  enum class Progress { automatic, on, off };
  enum class LogFormat { automatic, trainer, json };
  enum class Stream { automatic, on, off };
  enum class Preflight { none, nettest };
  enum class ReportFormat { table, markdown, csv, json };
  enum class ReportTables { comparison, workshop };
  enum class Efficiency { automatic, strong, weak, workshop };

  // model
  std::string model, tokenizer;
  Init init = Init::pretrained;
  int64_t vocab_size = 0, hidden_size = 512, num_layers = 6, num_heads = 8, ff_dim = 2048;
  bool tie_word_embeddings = true;
  double dropout = 0.1;
  // data
  std::string dataset, eval_dataset;
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
  Schedule lr_schedule = Schedule::linear;
  int64_t warmup_steps = 0;
  double warmup_ratio = 0.0;
  Warmup warmup_type = Warmup::linear;
  double warmup_min_lr = 0.0;
  int64_t lr_decay_steps = 0;
  OptimizerStates optimizer_states = OptimizerStates::fp32;
  int64_t activation_checkpointing = 0;  // number of blocks, or kAllBlocks
  FuseMicroBatches fuse_micro_batches = FuseMicroBatches::automatic;
  bool cuda_graphs = true;
  int64_t logging_steps = 10;
  TrackerChoice tracker;
  std::string tracker_dir;
  Interval eval_strategy = Interval::epoch;
  int64_t eval_steps = 0;
  bool eval_before = false;
  // checkpoints
  std::string resume = "auto";
  Interval save_strategy = Interval::epoch;
  bool overwrite = false;
  double owner_timeout = 180;  // s
  int64_t save_steps = 0, save_total_limit = 2;
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
  std::string prompt, question, context, prompts;
  bool do_sample = false;
  double temperature = 1.0, top_p = 1.0;
  int64_t top_k = 0;
  Stream stream = Stream::automatic;
  // machine
  int64_t seed = 42;
  Precision precision = Precision::fp32;
  DeviceChoice device = DeviceChoice::automatic;
  int64_t threads = 0;
  // settings of the Hugging Face Trainer that only set other settings, or are only checked
  bool fp16 = false, bf16 = false, gradient_checkpointing = false;
  std::string optim = "adamw_torch", report_to = "none", fsdp_config;
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
  bool pin_memory = true;  // used only if something is offloaded from a GPU
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
  int64_t fit = 0, device_memory = 0;          // bytes per rank
  int64_t host_memory = 0, disk = 0;           // bytes per node
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

// Groups of settings. Each verb lists the groups that it accepts.
using Groups = uint64_t;
enum Group : Groups {
  kModel = 1ull << 0,            // model, init
  kShape = 1ull << 1,            // sizes of a model defined by flags
  kText = 1ull << 2,             // how rows become samples of tokens
  kTrainData = 1ull << 3,        // which data to train on
  kEvalData = 1ull << 4,         // which data to evaluate on
  kOptimization = 1ull << 5,     // steps, rates, schedules
  kTrainEvaluation = 1ull << 6,  // when training evaluates
  kScoring = 1ull << 7,          // how answers are scored
  kGeneration = 1ull << 8,       // how text is generated
  kQuestion = 1ull << 9,         // question and context to answer
  kCheckpoints = 1ull << 10,     // when training saves, and where it resumes
  kSavedModel = 1ull << 11,      // contents of a saved model folder
  kMachine = 1ull << 12,         // device, precision, threads, seed
  kOutputDir = 1ull << 13,       // folder of the results
  kPresentation = 1ull << 14,    // format of the printed output
  kTokenizer = 1ull << 15,       // tokenizer
  kVocabulary = 1ull << 16,      // vocab_size
  kDataset = 1ull << 17,         // dataset
  kPrompt = 1ull << 18,          // a text to use unchanged
  kCheckpoint = 1ull << 19,      // the checkpoint to read
  kRanks = 1ull << 20,           // number of ranks, time limits and restarts
  kSharding = 1ull << 21,        // what to shard over the ranks, and what to offload
  kGradients = 1ull << 22,       // reduction of gradients, and the loss scale
  kPlan = 1ull << 23,            // the machine to plan for
  kNettest = 1ull << 24,         // what a network test sends, and the lowest bandwidth that it accepts
  kPreflight = 1ull << 25,       // checks before a run
  kShared = 1ull << 26,          // folders that all nodes share
  kMemoryLog = 1ull << 27,       // logs of memory over time
  kMemoryAnalysis = 1ull << 28,  // which logs of --memory-log to read
  kSlurm = 1ull << 29,           // the resources of a job, and the file that asks Slurm for them
  kSweep = 1ull << 30,           // what a sweep does with its runs
  kReport = 1ull << 31,          // contents and format of a report
  kSpecialTokens = 1ull << 32,   // special_tokens
  kSampling = 1ull << 33,        // how tokens are drawn
  kPromptFile = 1ull << 34,      // many prompts, and how their texts are shown
  kEvalBatch = 1ull << 35,       // eval_batch_size
  kOutputFile = 1ull << 36,      // file of the result
  kLog = 1ull << 37,             // the lines that a run prints
};
inline constexpr Groups kAllGroups = ~Groups{0};

// The heading of a group in help texts.
const char* title_of(Group group);

enum class SettingType { boolean, integer, real, bytes, text, choice };

// The value of any setting, as in a configuration file. A choice is its word, and a number of bytes is the text that
// bytes_text() returns.
using SettingValue = std::variant<bool, int64_t, double, std::string>;

// The permitted range of a number. Real numbers must also be finite.
struct Range {
  double min = -std::numeric_limits<double>::infinity(), max = std::numeric_limits<double>::infinity();
  bool open_min = false, open_max = false;  // open_min: the range excludes min; open_max: it excludes max
  bool contains(double x) const { return (open_min ? x > min : x >= min) && (open_max ? x < max : x <= max); }
  std::string bound_broken_by(double x) const;  // "at least 1": the bound that x breaks; x must be outside the range
};

// The declaration of one setting.
struct Setting {
  std::string name;                    // snake_case, as in files; flags use dashes
  std::vector<std::string> aliases{};  // alternative names (of other tools), in snake_case
  Group group;
  SettingType type;
  std::string unit{};  // placeholder of the value in help: "TOKENS", "PATH"; empty: boolean or choice
  std::string help;
  // If a verb takes one of the groups in `brief_for`, the verb's short help shows the setting, with the line `brief`.
  std::string brief{};
  Groups brief_for = 0;
  Range range{};
  std::vector<std::string> choices{};
  // The words of other tools for a choice, in lower case with underscores. Each comes with Tessera's word:
  // {"backward_pre", "pre"}.
  std::vector<std::pair<std::string, std::string>> synonyms{};
  // For a text with a prescribed syntax, such as "none|block|N": returns the text in canonical form. Throws UsageError
  // with the place (second argument) if the text does not follow the syntax.
  std::function<std::string(const std::string&, const std::string&)> canonical{};
  // The word that a flag without a value stands for, as in `--fit` for `--fit auto`. Empty: the flag needs a value. A
  // setting of bytes also accepts this word as its value.
  std::string bare_value{};
  // For a text: a configuration file may also give a number or a boolean, without quotes. It is converted to text.
  bool takes_scalars = false;
  // This setting only sets other settings. Resolution gives these other settings their values. A printed configuration
  // then shows this setting only as a comment.
  bool stands_for_others = false;
  std::function<SettingValue(const Settings&)> get{};
  std::function<void(Settings&, const SettingValue&)> set{};  // the value must have passed checked_value()

  std::string flag() const;                  // "--batch-size"
  std::string environment_variable() const;  // "TESSERA_BATCH_SIZE"
  // Whether `word` is the setting's name or an alias, with dashes or underscores.
  bool answers_to(std::string_view word) const;
};

// All declarations, in display order.
const std::vector<Setting>& all_settings();
// The settings of these groups, in display order.
std::vector<const Setting*> settings_of(Groups groups);
// The setting with this name or alias, or nullptr.
const Setting* find_setting(std::string_view word);

// The setting of `groups` that has `word` as one of its choices, or nullptr. For "fp16", this is `precision`. If
// several settings have this choice, prefers a setting whose `brief_for` is kAllGroups.
const Setting* find_setting_with_choice(std::string_view word, Groups groups);

// Replaces dashes by underscores. Names are compared in this form. dashed() does the opposite.
std::string underscored(std::string_view word);
std::string dashed(std::string_view word);

// Checks a value and converts it to the setting's type. A real setting accepts an integer. A choice may be written with
// dashes or capitals. Throws UsageError with `where` if the value has the wrong type or syntax, is out of
// range, or is not one of the choices.
SettingValue checked_value(const Setting& setting, const SettingValue& value, const std::string& where);
// Parses the text of a flag or an environment variable, and checks it like checked_value().
SettingValue parse_value(const Setting& setting, std::string_view text, const std::string& where);
// The value for an error message: control characters are escaped, and a long text is shortened.
std::string quoted_value(const SettingValue& value);
// The value as in TOML: numbers read back as the same value, and text is quoted.
std::string toml_text(const SettingValue& value);

}  // namespace tessera
