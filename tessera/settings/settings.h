// Every setting of Tessera, declared once. The declaration drives flags, configuration files, the environment, help,
// validation, the printed configuration and what a checkpoint records.
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
#include "tessera/data/prompts.h"
#include "tessera/data/scoring.h"
#include "tessera/optim/loss_scaler.h"
#include "tessera/optim/schedule.h"
#include "tessera/settings/setting_words.h"

namespace tessera {

// The values a verb works with. Names, meanings and units are in the declarations (settings.cc); an empty text or a
// zero that a help text calls "all" or "none" means that nothing was given.
struct Settings {
  using Objective = tessera::Objective;
  using Truncation = tessera::Truncation;
  using LongTexts = tessera::LongTexts;
  using BadRows = tessera::BadRows;
  using Scoring = tessera::Scoring;
  using LrSchedule = Schedule;
  using Warmup = tessera::Warmup;
  enum class Init { pretrained, random };
  enum class ActivationCheckpointing { none, block };
  enum class FuseMicroBatches { automatic, off };
  enum class Precision { fp32, tf32, fp16, bf16 };
  enum class Strategy {
    no_shard,
    zero0,
    zero1,
    zero2,
    zero3,
    shard_grad_op,
    full_shard,
    hybrid_shard,
    hybrid_shard_zero2
  };
  using Offload = tessera::Offload;
  enum class BackwardPrefetch { pre, post, none };
  enum class GradSync { automatic, micro, step };
  enum class ReduceDtype { automatic, fp32, bf16, fp16 };
  using LossScaleRules = tessera::LossScaleRules;
  enum class DeviceChoice { automatic, cpu, cuda };
  enum class Interval { no, epoch, steps };
  enum class Metric { eval_loss, exact_match, f1 };
  enum class Progress { automatic, on, off };
  enum class ReportFormat { table, markdown, csv, json };
  enum class ReportTables { comparison, workshop };
  enum class Efficiency { automatic, strong, weak, workshop };

  // model
  std::string model, tokenizer;
  Init init = Init::pretrained;
  int64_t vocab_size = 0, hidden_size = 512, num_layers = 6, num_heads = 8, ff_dim = 2048;
  double dropout = 0.1;
  // data
  std::string dataset, eval_dataset;
  int64_t train_size = 0, eval_size = 0;
  bool shuffle = true;
  Objective objective = Objective::completion;
  int64_t max_length = 512;
  Truncation truncation = Truncation::context;
  LongTexts long_texts = LongTexts::split;
  BadRows bad_rows = BadRows::skip;
  double max_bad_rows = 0.1;
  // training
  int64_t batch_size = 4, grad_accum = 1;
  double epochs = 3.0;
  int64_t max_steps = 0;
  double lr = 5e-5, weight_decay = 0.01, beta1 = 0.9, beta2 = 0.999, adam_epsilon = 1e-8, max_grad_norm = 1.0;
  int64_t max_skipped_updates = 3;
  Schedule lr_schedule = Schedule::linear;
  int64_t warmup_steps = 0;
  double warmup_ratio = 0.0;
  Warmup warmup_type = Warmup::linear;
  double warmup_min_lr = 0.0;
  int64_t lr_decay_steps = 0;
  ActivationCheckpointing activation_checkpointing = ActivationCheckpointing::none;
  FuseMicroBatches fuse_micro_batches = FuseMicroBatches::automatic;
  bool cuda_graphs = true;
  int64_t logging_steps = 10;
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
  DType save_dtype = DType::f32;
  bool save_async = false;
  // evaluation and generation
  int64_t eval_batch_size = 8, max_new_tokens = 50;
  bool eval_generation = false;
  Scoring scoring = Scoring::official;
  std::string prompt, question, context;
  // machine
  int64_t seed = 42;
  Precision precision = Precision::fp32;
  DeviceChoice device = DeviceChoice::automatic;
  int64_t threads = 0;
  // ranks
  int64_t nproc = 0;
  double comm_timeout = 600;  // s
  int64_t max_restarts = 0;
  double restart_pause = 5;  // s
  // sharding
  std::string deepspeed, fsdp;
  Strategy strategy = Strategy::no_shard;
  int64_t shard_group_size = 0, ranks_per_node = 0;
  BackwardPrefetch backward_prefetch = BackwardPrefetch::pre;
  bool forward_prefetch = false;
  int64_t max_units_in_flight = 2;
  bool sync_module_states = false;
  Offload offload;
  std::string offload_dir;
  bool pin_memory = false;
  // gradients among ranks, and their scale in fp16
  GradSync grad_sync = GradSync::automatic;
  int64_t reduce_bucket_size = 25 << 20;  // bytes
  ReduceDtype reduce_dtype = ReduceDtype::automatic;
  double loss_scale = 0;
  LossScaleRules loss_scale_rules = LossScaleRules::grad_scaler;
  int64_t initial_scale_power = 16, loss_scale_window = 0, loss_scale_hysteresis = 0;
  double min_loss_scale = 1;
  // plan
  int64_t fit = 0, device_memory = 0;  // bytes, of a rank
  int64_t host_memory = 0, disk = 0;   // bytes, of a node
  // output
  std::string output_dir, checkpoint;
  bool json = false;
  Progress progress = Progress::automatic;
  std::string experiment;
  // report
  std::string rows, columns, baseline, sort, report_file, html;
  ReportFormat format = ReportFormat::table;
  ReportTables tables = ReportTables::comparison;
  Efficiency efficiency = Efficiency::automatic;

  // What `progress` asks for, or nothing where the terminal decides.
  std::optional<bool> bars() const {
    return progress == Progress::automatic ? std::nullopt : std::optional(progress == Progress::on);
  }
  // The scale of the loss in fp16, zeros replaced by what the rules have.
  LossScaleOptions loss_scaling() const;
};

// Groups of settings: a verb names those it takes.
using Groups = uint32_t;
enum Group : Groups {
  kModel = 1u << 0,            // model, init
  kShape = 1u << 1,            // sizes of a model made from flags
  kText = 1u << 2,             // how a sample becomes tokens
  kTrainData = 1u << 3,        // what is trained on
  kEvalData = 1u << 4,         // what is evaluated on
  kOptimization = 1u << 5,     // steps, rates, schedules
  kTrainEvaluation = 1u << 6,  // when a training run evaluates
  kScoring = 1u << 7,          // how answers are scored
  kGeneration = 1u << 8,       // how text is generated
  kQuestion = 1u << 9,         // what is asked
  kCheckpoints = 1u << 10,     // when a training run saves, and from what it goes on
  kSavedModel = 1u << 11,      // what a saved model folder holds
  kMachine = 1u << 12,         // device, precision, threads, seed
  kOutputDir = 1u << 13,       // where results go
  kPresentation = 1u << 14,    // what is printed, and how
  kTokenizer = 1u << 15,       // tokenizer
  kVocabulary = 1u << 16,      // vocab_size
  kDataset = 1u << 17,         // dataset
  kPrompt = 1u << 18,          // a text as it is
  kCheckpoint = 1u << 19,      // which checkpoint
  kRanks = 1u << 20,           // how many take part, and how long they wait for each other
  kSharding = 1u << 21,        // what the ranks share, and where it lies
  kGradients = 1u << 22,       // how ranks add their gradients up, and the scale of the loss
  kPlan = 1u << 23,            // what a plan is made for
  kLabel = 1u << 24,           // the name of a run's experiment
  kReport = 1u << 25,          // what a report compares, and how it is written
};
inline constexpr Groups kAllGroups = ~0u;

// The heading of a group in help texts.
const char* title_of(Group group);

enum class SettingType { boolean, integer, real, bytes, text, choice };

// A setting's value outside of the struct; a choice is its word, an amount of bytes its canonical text.
using SettingValue = std::variant<bool, int64_t, double, std::string>;

// What a number may be. Reals are finite in any case.
struct Range {
  double min = -std::numeric_limits<double>::infinity(), max = std::numeric_limits<double>::infinity();
  bool open_min = false, open_max = false;  // the bound itself is outside
  bool contains(double x) const { return (open_min ? x > min : x >= min) && (open_max ? x < max : x <= max); }
  std::string bound_broken_by(double x) const;  // "at least 1", for an x that is outside
};

// The declaration of one setting.
struct Setting {
  std::string name;                    // snake_case, as in files; the flag has dashes
  std::vector<std::string> aliases{};  // other names, those of other tools, snake_case
  Group group;
  SettingType type;
  std::string unit{};  // what the value is, for help: "TOKENS", "PATH"; empty for booleans and choices
  std::string help;
  Range range{};
  std::vector<std::string> choices{};
  // Words of other tools for a choice, in small letters with underscores: "backward_pre" for "pre".
  std::vector<std::pair<std::string, std::string>> synonyms{};
  // Where a text has a grammar: gives its one canonical form, or throws UsageError with the place given second.
  std::function<std::string(const std::string&, const std::string&)> canonical{};
  // What it says stands with other settings once it is resolved, so that it is printed as a comment.
  bool stands_for_others = false;
  std::function<SettingValue(const Settings&)> get{};
  std::function<void(Settings&, const SettingValue&)> set{};  // the value has the setting's type and is in range

  std::string flag() const;                  // "--batch-size"
  std::string environment_variable() const;  // "TESSERA_BATCH_SIZE"
  // The setting's own name or an alias, written with dashes or underscores.
  bool answers_to(std::string_view word) const;
};

// All declarations, in the order in which they are shown.
const std::vector<Setting>& all_settings();
// Those of some groups.
std::vector<const Setting*> settings_of(Groups groups);
// The one with this name or alias, or nullptr.
const Setting* find_setting(std::string_view word);

// A word as names are compared: dashes become underscores.
std::string underscored(std::string_view word);
std::string dashed(std::string_view word);

// Checks a value and gives it the setting's own type: a whole number for a real, another spelling of a choice
// (dashes, capitals). Throws UsageError with `where` when the type, the range or the word is wrong.
SettingValue checked_value(const Setting& setting, const SettingValue& value, const std::string& where);
// The same from text, as flags and the environment have it.
SettingValue parse_value(const Setting& setting, std::string_view text, const std::string& where);
// The value as an error quotes it: control characters escaped, and not endless.
std::string quoted_value(const SettingValue& value);
// The value as TOML and JSON write it: numbers round-trip, text is quoted.
std::string toml_text(const SettingValue& value);

}  // namespace tessera
