// A setting of Tessera, declared once (declarations/). The declaration drives flags, configuration files, environment
// variables, help, validation, the printed configuration, and what a run that continues from a checkpoint may change.
#pragma once

#include <any>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "tessera/settings/settings.h"

namespace tessera {

// Groups of settings. Each verb lists the groups that it accepts.
using Groups = uint64_t;
enum Group : Groups {
  kModel = 1ull << 0,            // model
  kShape = 1ull << 1,            // sizes of a model defined by flags
  kText = 1ull << 2,             // how rows become samples of tokens
  kRows = 1ull << 39,            // which keys of a row have which meaning
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
  kPlan = 1ull << 23,            // the memory to plan for and to use, and its machine
  kNettest = 1ull << 24,         // what a network test sends, and the lowest bandwidth that it accepts
  kPreflight = 1ull << 25,       // checks before a run
  kShared = 1ull << 26,          // folders that all nodes share
  kMemoryLog = 1ull << 27,       // logs of memory over time
  kMemoryAnalysis = 1ull << 28,  // which logs of --memory-log to read
  kSlurm = 1ull << 29,           // the resources of a job, and the file that asks Slurm for them
  kSweep = 1ull << 30,           // what a sweep does with its runs
  kReport = 1ull << 31,          // contents and format of a report
  kSpecialTokens = 1ull << 32,   // special_tokens
  kSampling = 1ull << 33,        // how tokens are drawn, and which strings end a text
  kPromptFile = 1ull << 34,      // many prompts, and how their texts are shown
  kEvalBatch = 1ull << 35,       // eval_batch_size
  kOutputFile = 1ull << 36,      // file of the result
  kWeights = 1ull << 44,         // how the weights of a model begin
  kLog = 1ull << 37,             // the lines that a run prints
  kChat = 1ull << 38,            // how conversations become text
  kDialog = 1ull << 40,          // how a chat begins
  kAdapter = 1ull << 41,         // a new adapter
  kInitAdapter = 1ull << 42,     // the folder of an adapter
  kMerge = 1ull << 43,           // merge
  kGguf = 1ull << 45,            // gguf
  kOverwrite = 1ull << 46,       // overwrite
  kMeasure = 1ull << 47,         // measure
  kPlanOutput = 1ull << 48,      // what a plan shows
  kNodes = 1ull << 49,           // nodes
};
inline constexpr Groups kAllGroups = ~Groups{0};

// The heading of a group in help texts.
const char* title_of(Group group);

enum class SettingType { boolean, integer, real, bytes, text, choice, list };

// A value whose text has a syntax of its own, such as "optimizer:host" or "25MiB".
struct ParsedValue {
  ParsedValue(std::string canonical, std::any meaning) : text(std::move(canonical)), value(std::move(meaning)) {}
  std::string text;  // in canonical form: equal values have equal texts
  std::any value;    // an Offload, a number of bytes: what the setting's member of Settings has
  bool operator==(const ParsedValue& other) const { return text == other.text; }
};
// For nlohmann::json: a configuration in JSON has the text.
template <typename Json>
void to_json(Json& json, const ParsedValue& value) {
  json = value.text;
}

// The value of any setting, as in a configuration file. A choice is its word. A list of texts is a vector only if it
// has several texts. One text is the text itself, and no text is "".
using SettingValue = std::variant<bool, int64_t, double, std::string, std::vector<std::string>, ParsedValue>;

SettingValue list_value(std::vector<std::string> texts);
std::vector<std::string> texts_of(const SettingValue& list);

// The permitted range of a number. Real numbers must also be finite.
struct Range {
  double min = -std::numeric_limits<double>::infinity(), max = std::numeric_limits<double>::infinity();
  bool open_min = false, open_max = false;  // open_min: the range excludes min; open_max: it excludes max
  bool contains(double x) const { return (open_min ? x > min : x >= min) && (open_max ? x < max : x <= max); }
  std::string bound_broken_by(double x) const;  // "at least 1": the bound that x breaks; x must be outside the range
};

// Whether a run that continues from a checkpoint may have another value of a setting than the checkpoint's run.
enum class Resume {
  any,         // yes: the setting determines only the length of the run
  new_folder,  // only if a new run, in another folder, begins from the checkpoint
  never,       // the setting determines the model, the samples, their order or the metrics
};

// The declaration of one setting.
struct Setting {
  std::string name;                    // snake_case, as in files; flags use dashes
  std::vector<std::string> aliases{};  // alternative names (of other tools), in snake_case
  // The word of the flag, in snake_case, if it is not the name because another verb's setting has this name. The flag
  // may also be the name, and must be the name in a verb that takes both settings. Files and variables have only the
  // name.
  std::string flag_word{};
  Group group;
  SettingType type;
  std::string unit{};  // placeholder of the value in help: "TOKENS", "PATH"; empty: boolean or choice
  std::string help;
  // If a verb takes one of the groups in `brief_for`, the verb's short help shows the setting, with the line `brief`.
  std::string brief{};
  Groups brief_for = 0;
  // Unset: any run may change the setting, and checkpoints do not record it. Otherwise, a checkpoint records the value.
  // A checkpoint without the value comes from a version without the setting: the run then had the default.
  std::optional<Resume> resume{};
  // What a checkpoint records instead of the value: a fact that several settings determine, such as "the model".
  std::string fact{};
  Range range{};
  // For an integer that counts steps: the value may also be a fraction of all steps, between 0 and 1.
  bool takes_fraction = false;
  std::vector<std::string> choices{};
  // The words of other tools for a choice, in lower case with underscores. Each comes with Tessera's word:
  // {"backward_pre", "pre"}.
  std::vector<std::pair<std::string, std::string>> synonyms{};
  // Words of other tools that are no choice here. Each comes with what to write instead.
  std::vector<std::pair<std::string, std::string>> refused{};
  // For a text with a prescribed syntax, such as "FOLDER[:SECONDS]": reads the text. Throws UsageError with the
  // place (second argument) if the text does not follow the syntax.
  std::function<SettingValue(const std::string&, const std::string&)> parse{};
  // The word that a flag without a value stands for, as in `--fit` for `--fit auto`. Empty: the flag needs a value. A
  // setting of bytes also accepts this word as its value, which is then Settings::kThisMachine.
  std::string bare_value{};
  // For a text: a configuration file may also give a number or a boolean, without quotes. It is converted to text.
  bool takes_scalars = false;
  // The empty text is a value of its own: it does not mean that the setting is not given.
  bool may_be_empty = false;
  // This setting only sets other settings. Resolution gives these other settings their values. A printed configuration
  // then shows this setting only as a comment.
  bool stands_for_others = false;
  std::function<SettingValue(const Settings&)> get{};
  std::function<void(Settings&, const SettingValue&)> set{};  // the value must have passed checked_value()

  // "--batch-size": the flag in a verb that takes `groups`, or in a verb that takes this setting.
  std::string flag_in(Groups groups) const;
  std::string flag() const { return flag_in(group); }
  std::string environment_variable() const;  // "TESSERA_BATCH_SIZE"
  // Whether `word` is the setting's name or an alias, with dashes or underscores.
  bool answers_to(std::string_view word) const;
  // Whether a checkpoint records the value.
  bool is_recorded() const { return resume && fact.empty(); }
};

// All declarations, in display order.
const std::vector<Setting>& all_settings();
// The settings of these groups, in display order.
std::vector<const Setting*> settings_of(Groups groups);
// The setting with this name or alias, or nullptr.
const Setting* find_setting(std::string_view word);

// The setting that a flag with this word means in a verb that takes `groups`: a setting of these groups with this name,
// alias or flag_word. If there is none, find_setting(word).
const Setting* find_flag(std::string_view word, Groups groups);

// The setting of `groups` that has `word` as one of its choices, or nullptr. For "fp16", this is `precision`. If
// several settings have this choice, prefers a setting whose `brief_for` is kAllGroups.
const Setting* find_setting_with_choice(std::string_view word, Groups groups);

// Replaces dashes by underscores. Names are compared in this form. dashed() does the opposite.
std::string underscored(std::string_view word);
std::string dashed(std::string_view word);

// Checks a value and converts it to the setting's type. A ParsedValue is already checked. A real setting accepts an
// integer. A choice may be written with dashes or capitals. Throws UsageError with `where` if the value has the wrong
// type or syntax, is out of range, or is not one of the choices.
SettingValue checked_value(const Setting& setting, const SettingValue& value, const std::string& where);
// Parses the text of a flag or an environment variable, and checks it like checked_value(). The text is one element of
// a list.
SettingValue parse_value(const Setting& setting, std::string_view text, const std::string& where);
// The value for an error message: control characters are escaped, and a long text is shortened.
std::string quoted_value(const SettingValue& value);
// The value as in TOML: numbers read back as the same value, and text is quoted.
std::string toml_text(const SettingValue& value);
// The value as after a flag: as in TOML, but a text has no quotes.
std::string plain_text(const SettingValue& value);

}  // namespace tessera
