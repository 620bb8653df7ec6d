#include "tessera/settings/setting.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "tessera/base/text.h"
#include "tessera/model/architecture.h"
#include "tessera/settings/declarations/declaring.h"

namespace tessera {

namespace {

std::vector<Setting> declare_all() {
  std::vector<Setting> all;
  for (auto* part : {declaring::model_settings, declaring::adapter_settings, declaring::data_settings,
                     declaring::chat_settings, declaring::optimization_settings, declaring::schedule_settings,
                     declaring::checkpoint_settings, declaring::generation_settings, declaring::sharding_settings,
                     declaring::nettest_settings, declaring::machine_settings, declaring::memory_log_settings,
                     declaring::report_settings, declaring::slurm_settings, declaring::sweep_settings,
                     declaring::tracker_settings, declaring::trainer_settings}) {
    for (auto& setting : part()) all.push_back(std::move(setting));
  }
  // Settings of a group become adjacent. The groups are in the order of their first settings.
  std::vector<Group> order;
  for (const Setting& setting : all) {
    if (std::ranges::find(order, setting.group) == order.end()) order.push_back(setting.group);
  }
  std::ranges::stable_sort(all, {}, [&](const Setting& setting) { return std::ranges::find(order, setting.group); });
  return all;
}

}  // namespace

const char* title_of(Group group) {
  static const std::string shape = fmt::format("Shape of a new model ({})", joined(names_with_free_sizes(), ", "));
  static const std::map<Group, const char*> titles{
      {kModel, "Model"},
      {kWeights, "Initial weights"},
      {kShape, shape.c_str()},
      {kText, "Samples"},
      {kRows, "Rows"},
      {kChat, "Conversations"},
      {kDialog, "Chat"},
      {kAdapter, "New adapter"},
      {kInitAdapter, "Adapter"},
      {kMerge, "Merged model"},
      {kGguf, "GGUF"},
      {kOverwrite, "Existing results"},
      {kTrainData, "Training data"},
      {kEvalData, "Evaluation data"},
      {kOptimization, "Training"},
      {kTrainEvaluation, "Evaluation while training"},
      {kScoring, "Scoring"},
      {kGeneration, "Generation"},
      {kQuestion, "Question"},
      {kTokenizer, "Tokenizer"},
      {kSpecialTokens, "Tokens"},
      {kSampling, "Sampling and stop strings"},
      {kPromptFile, "Prompts"},
      {kEvalBatch, "Batches without training"},
      {kLog, "Log"},
      {kOutputFile, "Output file"},
      {kVocabulary, "Vocabulary"},
      {kDataset, "Data"},
      {kPrompt, "Prompt"},
      {kCheckpoint, "Checkpoint"},
      {kCheckpoints, "Checkpoints"},
      {kSavedModel, "Saved model"},
      {kMachine, "Machine"},
      {kRanks, "Ranks"},
      {kSharding, "Sharding"},
      {kGradients, "Gradients"},
      {kPlan, "Memory limits"},
      {kPlanOutput, "Plan"},
      {kNodes, "Nodes"},
      {kNettest, "Network test"},
      {kPreflight, "Checks before the run"},
      {kShared, "Shared folders"},
      {kMeasure, "Speeds of the machine"},
      {kMemoryLog, "Memory over time"},
      {kMemoryAnalysis, "Logs"},
      {kSlurm, "Slurm job"},
      {kSweep, "Sweep"},
      {kReport, "Report"},
      {kOutputDir, "Output"},
      {kPresentation, "Presentation"},
  };
  return titles.at(group);
}

std::string underscored(std::string_view word) {
  std::string text(word);
  std::replace(text.begin(), text.end(), '-', '_');
  return text;
}

std::string dashed(std::string_view word) {
  std::string text(word);
  std::replace(text.begin(), text.end(), '_', '-');
  return text;
}

std::string Setting::flag_in(Groups groups) const {
  const bool has_word = !flag_word.empty() && find_flag(flag_word, groups | group) == this;
  return "--" + dashed(has_word ? flag_word : name);
}

std::string Setting::environment_variable() const {
  std::string text = "TESSERA_" + name;
  std::transform(text.begin(), text.end(), text.begin(),
                 [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; });
  return text;
}

bool Setting::answers_to(std::string_view word) const {
  const std::string wanted = underscored(word);
  return wanted == name || std::find(aliases.begin(), aliases.end(), wanted) != aliases.end();
}

const std::vector<Setting>& all_settings() {
  static const std::vector<Setting> all = declare_all();
  return all;
}

std::vector<const Setting*> settings_of(Groups groups) {
  std::vector<const Setting*> chosen;
  for (const auto& setting : all_settings()) {
    if (groups & setting.group) chosen.push_back(&setting);
  }
  return chosen;
}

const Setting* find_setting(std::string_view word) {
  for (const auto& setting : all_settings()) {
    if (setting.answers_to(word)) return &setting;
  }
  return nullptr;
}

const Setting* find_flag(std::string_view word, Groups groups) {
  const std::vector<const Setting*> own = settings_of(groups);
  const auto named = std::ranges::find_if(own, [&](const Setting* setting) { return setting->answers_to(word); });
  if (named != own.end()) return *named;
  const std::string wanted = underscored(word);
  const auto flagged = std::ranges::find_if(
      own, [&](const Setting* setting) { return !wanted.empty() && setting->flag_word == wanted; });
  return flagged != own.end() ? *flagged : find_setting(word);
}

const Setting* find_setting_with_choice(std::string_view word, Groups groups) {
  const Setting* found = nullptr;
  for (const Setting* setting : settings_of(groups)) {
    if (std::ranges::find(setting->choices, underscored(word)) == setting->choices.end()) continue;
    if (!found || (found->brief_for != kAllGroups && setting->brief_for == kAllGroups)) found = setting;
  }
  return found;
}

}  // namespace tessera
