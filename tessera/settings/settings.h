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
#include "tessera/data/prompts.h"
#include "tessera/data/scoring.h"
#include "tessera/engine/shard_plan.h"
#include "tessera/optim/loss_scaler.h"
#include "tessera/optim/schedule.h"
#include "tessera/settings/setting_words.h"

namespace tessera {

// The values that a verb uses. The declarations (settings.cc) have their names, meanings and units. An empty text means
// that nothing was given. A zero may have a special meaning; see the help text.
struct Settings {
  enum class Init { pretrained, random };
  enum class ActivationCheckpointing { none, block };
  enum class FuseMicroBatches { automatic, off };
  enum class Precision { fp32, tf32, fp16, bf16 };
  enum class DeviceChoice { automatic, cpu, cuda };
  enum class Interval { no, epoch, steps };
  enum class Metric { eval_loss, exact_match, f1 };
  enum class Progress { automatic, on, off };

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
  ShardingStrategy strategy = ShardingStrategy::no_shard;
  int64_t shard_group_size = 0, ranks_per_node = 0;
  BackwardPrefetch backward_prefetch = BackwardPrefetch::pre;
  bool forward_prefetch = false;
  int64_t max_units_in_flight = 2;
  bool sync_module_states = false;
  Offload offload;
  std::string offload_dir;
  bool pin_memory = false;
  // reduction of gradients over ranks, and the loss scale of fp16
  GradientSync grad_sync = GradientSync::automatic;
  int64_t reduce_bucket_size = 25 << 20;  // bytes
  std::optional<DType> reduce_dtype;      // unset: see gradient_dtype()
  double loss_scale = 0;
  LossScaleRules loss_scale_rules = LossScaleRules::grad_scaler;
  int64_t initial_scale_power = 16, loss_scale_window = 0, loss_scale_hysteresis = 0;
  double min_loss_scale = 1;
  // plan
  int64_t fit = 0, device_memory = 0;  // bytes per rank
  int64_t host_memory = 0, disk = 0;   // bytes per node
  // output
  std::string output_dir, checkpoint;
  bool json = false, dry_run = false;
  Progress progress = Progress::automatic;

  // Whether to show progress bars. Empty if this depends on the terminal.
  std::optional<bool> bars() const {
    return progress == Progress::automatic ? std::nullopt : std::optional(progress == Progress::on);
  }
  // The options of loss scaling in fp16. A zero is replaced by the default of the rules.
  LossScaleOptions loss_scaling() const;
};

// Groups of settings. Each verb lists the groups that it accepts.
using Groups = uint32_t;
enum Group : Groups {
  kModel = 1u << 0,            // model, init
  kShape = 1u << 1,            // sizes of a model defined by flags
  kText = 1u << 2,             // how rows become samples of tokens
  kTrainData = 1u << 3,        // which data to train on
  kEvalData = 1u << 4,         // which data to evaluate on
  kOptimization = 1u << 5,     // steps, rates, schedules
  kTrainEvaluation = 1u << 6,  // when training evaluates
  kScoring = 1u << 7,          // how answers are scored
  kGeneration = 1u << 8,       // how text is generated
  kQuestion = 1u << 9,         // question and context to answer
  kCheckpoints = 1u << 10,     // when training saves, and where it resumes
  kSavedModel = 1u << 11,      // contents of a saved model folder
  kMachine = 1u << 12,         // device, precision, threads, seed
  kOutputDir = 1u << 13,       // folder of the results
  kPresentation = 1u << 14,    // format of the printed output
  kTokenizer = 1u << 15,       // tokenizer
  kVocabulary = 1u << 16,      // vocab_size
  kDataset = 1u << 17,         // dataset
  kPrompt = 1u << 18,          // a text to use unchanged
  kCheckpoint = 1u << 19,      // the checkpoint to read
  kRanks = 1u << 20,           // number of ranks, time limits and restarts
  kSharding = 1u << 21,        // what to shard over the ranks, and offload
  kGradients = 1u << 22,       // reduction of gradients, and the loss scale
  kPlan = 1u << 23,            // the machine to plan for
  kSweep = 1u << 28,           // what a sweep does with its runs
};
inline constexpr Groups kAllGroups = ~0u;

// The heading of a group in help texts.
const char* title_of(Group group);

enum class SettingType { boolean, integer, real, bytes, text, choice };

// The value of a setting outside the struct. A choice is stored as its word, and an amount of bytes as canonical text.
using SettingValue = std::variant<bool, int64_t, double, std::string>;

// The permitted range of a number. Real numbers must also be finite.
struct Range {
  double min = -std::numeric_limits<double>::infinity(), max = std::numeric_limits<double>::infinity();
  bool open_min = false, open_max = false;  // the range excludes this bound
  bool contains(double x) const { return (open_min ? x > min : x >= min) && (open_max ? x < max : x <= max); }
  std::string bound_broken_by(double x) const;  // for an x outside the range: "at least 1"
};

// The declaration of one setting.
struct Setting {
  std::string name;                    // snake_case, as in files; flags use dashes
  std::vector<std::string> aliases{};  // alternative names (of other tools), in snake_case
  Group group;
  SettingType type;
  std::string unit{};  // placeholder of the value in help: "TOKENS", "PATH"; empty: boolean or choice
  std::string help;
  // The short help of a verb that takes one of the groups `brief_for` shows the setting, with this one line.
  std::string brief{};
  Groups brief_for = 0;
  Range range{};
  std::vector<std::string> choices{};
  // Other tools' words for a choice and the words here, in lower case with underscores: {"backward_pre", "pre"}.
  std::vector<std::pair<std::string, std::string>> synonyms{};
  // For a text with a grammar: returns its canonical form. Throws UsageError with the place (second argument).
  std::function<std::string(const std::string&, const std::string&)> canonical{};
  // After resolution, other settings hold the values that it implies. It is then printed only as a comment.
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

// The setting that has `word` as one of its choices ("fp16": precision), or nullptr. Prefers one that the short help
// of every verb shows.
const Setting* find_setting_with_choice(std::string_view word, Groups groups);

// Replaces dashes by underscores. Names are compared in this form. dashed() does the opposite.
std::string underscored(std::string_view word);
std::string dashed(std::string_view word);

// Checks a value and converts it to the setting's type. A real setting accepts an integer. A choice may be written with
// dashes or capitals. Throws UsageError with `where` if the type, the range or the word is wrong.
SettingValue checked_value(const Setting& setting, const SettingValue& value, const std::string& where);
// The same for the text of a flag or an environment variable.
SettingValue parse_value(const Setting& setting, std::string_view text, const std::string& where);
// The value for an error message: control characters are escaped, and a long text is shortened.
std::string quoted_value(const SettingValue& value);
// The value as in TOML: numbers read back as the same value, and text is quoted.
std::string toml_text(const SettingValue& value);

}  // namespace tessera
