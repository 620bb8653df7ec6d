#include "tessera/settings/resolve.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "tessera/base/closest_word.h"
#include "tessera/base/counted.h"
#include "tessera/base/error.h"
#include "tessera/base/text.h"
#include "tessera/model/architecture.h"
#include "tessera/settings/config_file.h"
#include "tessera/settings/foreign/deepspeed.h"
#include "tessera/settings/foreign/foreign_arguments.h"
#include "tessera/settings/foreign/fsdp_words.h"
#include "tessera/settings/foreign/trainer_words.h"

namespace tessera {

namespace {

std::vector<std::string> names_and_aliases() {
  std::vector<std::string> names;
  for (const auto& setting : all_settings()) {
    names.push_back(setting.name);
    names.insert(names.end(), setting.aliases.begin(), setting.aliases.end());
  }
  return names;
}

std::string remedy_for_unknown(const std::string& key) {
  if (const Setting* setting = find_setting_with_choice(key, kAllGroups)) {
    return fmt::format("Write {} = \"{}\"", setting->name, underscored(key));
  }
  return did_you_mean(underscored(key), names_and_aliases());
}

void apply(const LayerValue& layer_value, ResolvedSettings& resolved) {
  if (!(layer_value.setting->group & resolved.groups)) return;
  layer_value.setting->set(resolved.settings, layer_value.value);
  resolved.origins[layer_value.setting->name] = layer_value.origin;
}

// Checks and applies the entries of a configuration file and of the files that it includes.
class FileLayer {
 public:
  FileLayer(const SettingSources& sources, const std::string& verb, const std::vector<std::string>& verb_names,
            ResolvedSettings& resolved)
      : sources_(sources), verb_(verb), verb_names_(verb_names), resolved_(resolved) {}

  // Entries of the same file are adjacent in sources_.file. Each file is applied on its own.
  void apply_all() {
    for (std::span<const FileEntry> rest = sources_.file; !rest.empty();) {
      const auto end = std::ranges::find_if(rest, [&](const FileEntry& e) { return e.file != rest.front().file; });
      const auto size = static_cast<size_t>(end - rest.begin());
      apply_file(rest.first(size));
      rest = rest.subspan(size);
    }
  }

 private:
  static bool is_fsdp(const FileEntry& entry) { return entry.table == "fsdp" || entry.table == "fsdp_config"; }
  static std::string place(const FileEntry& entry) { return fmt::format("{}:{}", entry.file, entry.line); }

  void apply_file(std::span<const FileEntry> entries) {
    lines_.clear();
    without_effect_.clear();
    for (const auto& entry : entries) {
      if (entry.table.empty()) apply_entry(entry);
    }
    for (const auto& entry : entries) {
      if (is_fsdp(entry)) apply_fsdp(entry);
    }
    for (const auto& entry : entries) {
      if (!entry.table.empty() && !is_fsdp(entry)) apply_entry(entry);
    }
    if (!without_effect_.empty()) {
      resolved_.warnings.push_back(
          fmt::format("{}: [{}]: these keys are ignored, because they have no effect in Tessera: {}",
                      entries.front().file, fsdp_table_, joined(without_effect_, ", ")));
    }
  }

  void apply_entry(const FileEntry& entry) {
    const std::string where = fmt::format("{}: {}", place(entry), entry.key);
    if (!entry.table.empty() && std::find(verb_names_.begin(), verb_names_.end(), entry.table) == verb_names_.end()) {
      std::vector<std::string> tables = verb_names_;
      tables.push_back("fsdp");
      throw UsageError(fmt::format("{}: [{}]", place(entry), entry.table),
                       "unknown table; a table must have the name of a verb, or fsdp",
                       did_you_mean(entry.table, tables));
    }
    const Setting* setting = find_setting(entry.key);
    const ForeignArgument* foreign = setting ? nullptr : find_foreign_argument(entry.key);
    if (foreign) {
      const auto* text = std::get_if<std::string>(&entry.value);
      const std::string note = note_of_foreign(*foreign, text ? *text : toml_text(entry.value), where);
      if (entry.table.empty() || entry.table == verb_) resolved_.warnings.push_back(note);
      return;
    }
    if (!setting) throw UsageError(where, "unknown setting", remedy_for_unknown(entry.key));
    const SettingValue value = checked_value(*setting, entry.value, where);
    check_first(entry.table, *setting, entry, where);
    if (entry.table.empty() || entry.table == verb_) {
      apply({setting, value, {Origin::Kind::file, place(entry)}}, resolved_);
    }
  }

  void apply_fsdp(const FileEntry& entry) {
    const std::string where = fmt::format("{}: {}.{}", place(entry), entry.table, entry.key);
    const FsdpMeaning meaning = meaning_of_fsdp_key(entry.key, entry.value, where);
    if (!meaning.note.empty()) {
      without_effect_.push_back(meaning.note);
      fsdp_table_ = entry.table;
    }
    for (const auto& [setting, value] : meaning.values) {
      check_first("", *setting, entry, where);
      apply({setting, value, {Origin::Kind::file, place(entry)}}, resolved_);
    }
  }

  // Throws UsageError if another line of the same file and the same table sets the same setting, under its name or an
  // alias. `table` is empty for the top level. [fsdp] and [fsdp_config] count as the top level.
  void check_first(const std::string& table, const Setting& setting, const FileEntry& entry, const std::string& where) {
    const auto [earlier, is_new] = lines_.insert({{table, setting.name}, entry.line});
    if (!is_new)
      throw UsageError(where, fmt::format("is already set in line {}", earlier->second), "Remove one of the two lines");
  }

  const SettingSources& sources_;
  const std::string& verb_;
  const std::vector<std::string>& verb_names_;
  ResolvedSettings& resolved_;
  std::map<std::pair<std::string, std::string>, int> lines_;  // (table, setting) → line
  std::vector<std::string> without_effect_;                   // the ignored keys of the table fsdp_table_
  std::string fsdp_table_;                                    // "fsdp" or "fsdp_config"
};

void apply_environment(const Environment& environment, ResolvedSettings& resolved) {
  std::vector<std::string> variables;
  for (const auto& setting : all_settings()) variables.push_back(setting.environment_variable());
  for (const auto& [variable, text] : environment) {
    if (!variable.starts_with("TESSERA_")) continue;
    const auto it = std::find(variables.begin(), variables.end(), variable);
    if (it == variables.end()) {
      const std::string remedy = did_you_mean(variable, variables);
      resolved.warnings.push_back(fmt::format("{}: this environment variable is not a setting and is ignored{}{}",
                                              variable, remedy.empty() ? "" : ". ", remedy));
      continue;
    }
    const Setting& setting = all_settings()[static_cast<size_t>(it - variables.begin())];
    if (!(setting.group & resolved.groups)) continue;
    const bool is_list = setting.type == SettingType::list;
    setting.set(resolved.settings, is_list ? checked_value(setting, parse_list(text, variable), variable)
                                           : parse_value(setting, text, variable));
    resolved.origins[setting.name] = {Origin::Kind::environment, variable};
  }
}

}  // namespace

std::string Origin::to_string() const {
  switch (kind) {
    case Kind::preset:
      return place.empty() ? "default" : fmt::format("default ({})", place);
    case Kind::deepspeed_preset:
      return "default of DeepSpeed";
    case Kind::file:
    case Kind::deepspeed:
      return place;
    case Kind::environment:
      return "environment " + place;
    case Kind::flag:
      return "flag " + place;
  }
  return "";
}

std::string ResolvedSettings::where(const std::string& name) const {
  const auto it = origins.find(name);
  if (it == origins.end() || it->second.kind == Origin::Kind::preset) {
    return of_program ? name : find_setting(name)->flag_in(groups);
  }
  return it->second.kind == Origin::Kind::file ? fmt::format("{}: {}", it->second.place, name) : it->second.place;
}

bool ResolvedSettings::is_given(const std::string& name) const {
  const auto it = origins.find(name);
  return it != origins.end() && it->second.kind > Origin::Kind::deepspeed_preset;
}

bool ResolvedSettings::is_flag(const std::string& name) const {
  const auto it = origins.find(name);
  return it != origins.end() && it->second.kind == Origin::Kind::flag;
}

namespace {

// Sizes (shape, vocabulary) have no effect if a source of higher precedence names a model with its own shape, because
// the sizes were meant for another model. This function adds a warning about such sizes.
void report_unused_sizes(ResolvedSettings& resolved) {
  const std::string& model = resolved.settings.model;
  if (!(resolved.groups & kModel) || model.empty() || has_free_sizes(model)) return;
  std::vector<std::string> names;
  for (const Setting* setting : settings_of(resolved.groups & (kShape | kVocabulary))) {
    const Origin& origin = resolved.origins.at(setting->name);
    if (origin.kind == Origin::Kind::preset || origin.kind >= resolved.origins.at("model").kind) continue;
    if (setting->get(resolved.settings) != setting->get(Settings())) names.push_back(setting->name);
  }
  if (names.empty()) return;
  resolved.warnings.push_back(fmt::format("{}: no effect, because {} \"{}\" has its own shape", joined(names, ", "),
                                          resolved.where("model"), model));
}

// Sets train_size to train_size_per_rank times the number of ranks, unless train_size has a higher precedence.
void settle_train_size(ResolvedSettings& resolved) {
  Settings& s = resolved.settings;
  if (!(resolved.groups & kTrainData) || s.train_size_per_rank == 0) return;
  const Setting& total = *find_setting("train_size");
  const std::string where = resolved.where("train_size_per_rank");
  const SettingValue value = checked_value(total, s.train_size_per_rank * resolved.num_ranks, where);
  set_implied(resolved, "train_size_per_rank", total, value);
}

// If batch_size and batch_tokens are both given, the one with the higher precedence is used. If they have the same
// precedence, set_implied() throws UsageError.
void settle_micro_batch(ResolvedSettings& resolved) {
  Settings& s = resolved.settings;
  if (!(resolved.groups & kOptimization) || s.batch_tokens == 0) return;
  set_implied(resolved, "batch_tokens", *find_setting("batch_size"), int64_t{0});
  if (s.batch_size > 0) {
    s.batch_tokens = 0;
    resolved.origins["batch_tokens"] = resolved.origins.at("batch_size");
  }
}

// Gives save_strategy the value "steps" if save_steps is given, and save_strategy is not. The same for evaluation.
void settle_intervals(ResolvedSettings& resolved) {
  for (const auto& [steps, strategy] :
       {std::pair{"save_steps", "save_strategy"}, std::pair{"eval_steps", "eval_strategy"}}) {
    const auto given = resolved.origins.find(steps), asked = resolved.origins.find(strategy);
    if (given == resolved.origins.end() || asked == resolved.origins.end()) continue;
    const bool is_open = given->second.kind != Origin::Kind::preset && asked->second.kind == Origin::Kind::preset;
    if (!is_open || find_setting(steps)->get(resolved.settings) == find_setting(steps)->get(Settings())) continue;
    find_setting(strategy)->set(resolved.settings, std::string("steps"));
    asked->second = given->second;
  }
}

// The answers of a chat are longer than those that evaluation and generation expect.
void settle_answer_length(const std::string& verb, ResolvedSettings& resolved) {
  if (verb != "chat" || resolved.is_given("max_new_tokens")) return;
  resolved.settings.max_new_tokens = 1024;
  resolved.origins["max_new_tokens"].place = "chat";
}

// Applies the flags. The words of all flags of a list become one list.
void apply_flags(const SettingSources& sources, ResolvedSettings& resolved) {
  std::map<const Setting*, std::vector<std::string>> lists;
  for (const auto& [setting, text] : sources.flags) {
    const std::string flag = setting->flag_in(resolved.groups);
    SettingValue value;
    if (setting->type == SettingType::list) {
      auto& texts = lists[setting];
      texts.push_back(text);
      value = texts.size() == 1 ? parse_value(*setting, text, flag) : checked_value(*setting, texts, flag);
    } else {
      value = parse_value(*setting, text, flag);
    }
    apply({setting, value, {Origin::Kind::flag, flag}}, resolved);
  }
}

// Applies the options of a program.
void apply_options(const SettingSources& sources, const std::string& verb, ResolvedSettings& resolved) {
  resolved.of_program = sources.options.has_value();
  if (!resolved.of_program) return;
  for (const auto& [word, value] : *sources.options) {
    const Setting* setting = find_flag(word, resolved.groups);
    if (!setting) throw UsageError(word, "unknown setting", remedy_for_unknown(word));
    if (!(setting->group & resolved.groups)) throw UsageError(word, fmt::format("is not a setting of {}", verb));
    apply({setting, checked_value(*setting, value, word), {Origin::Kind::flag, word}}, resolved);
  }
}

// The ranks of a plan for several nodes.
void settle_nodes(ResolvedSettings& resolved) {
  const bool plans = resolved.groups & kPlanOutput && resolved.groups != kAllGroups;
  if (!plans || !resolved.is_given("nodes")) return;
  Settings& s = resolved.settings;
  constexpr int64_t kUsual = 8;  // GPUs of a node
  if (s.nproc == 0) {
    if (s.ranks_per_node == 0) s.ranks_per_node = kUsual;
    s.nproc = s.nodes * s.ranks_per_node;
  } else if (s.ranks_per_node == 0 && s.nproc % s.nodes == 0) {
    s.ranks_per_node = s.nproc / s.nodes;
  }
  if (s.nodes * s.ranks_per_node == s.nproc) return;
  throw UsageError(
      resolved.where("nodes"),
      fmt::format("{} are not {} with equally many ranks", counted(s.nproc, "rank"), counted(s.nodes, "node")),
      "Give --ranks-per-node or --nproc, and not both");
}

// Applies the layers in ascending precedence. `deepspeed` may be nullptr.
ResolvedSettings layered(const SettingSources& sources, Groups groups, const std::string& verb,
                         const std::vector<std::string>& verb_names, const DeepSpeedLayer* deepspeed) {
  ResolvedSettings resolved;
  resolved.groups = groups;
  resolved.num_ranks = sources.num_ranks;
  for (const Setting* setting : settings_of(groups)) resolved.origins[setting->name] = {};
  if (deepspeed) {
    for (const LayerValue& value : deepspeed->presets) apply(value, resolved);
  }
  FileLayer(sources, verb, verb_names, resolved).apply_all();
  if (deepspeed) {
    for (const LayerValue& value : deepspeed->values) apply(value, resolved);
  }
  apply_environment(sources.environment, resolved);
  apply_flags(sources, resolved);
  apply_options(sources, verb, resolved);
  apply_trainer_words(resolved);
  settle_nodes(resolved);
  if (groups & kRanks) resolved.num_ranks = std::max(resolved.num_ranks, resolved.settings.nproc);
  settle_train_size(resolved);
  settle_micro_batch(resolved);
  settle_intervals(resolved);
  settle_answer_length(verb, resolved);
  report_unused_sizes(resolved);
  return resolved;
}

}  // namespace

ResolvedSettings resolve(const SettingSources& sources, Groups groups, const std::string& verb,
                         const std::vector<std::string>& verb_names) {
  ResolvedSettings resolved = layered(sources, groups, verb, verb_names, nullptr);
  const Settings& s = resolved.settings;
  if (!s.fsdp.empty() && !s.deepspeed.empty()) {
    throw UsageError(resolved.where("fsdp"), fmt::format("contradicts {} {}", resolved.where("deepspeed"), s.deepspeed),
                     "Give only one of the two");
  }
  if (s.deepspeed.empty()) return resolved;
  const std::string name = s.deepspeed;
  const DeepSpeedLayer layer =
      read_deepspeed(read_config_text(name, "--deepspeed needs a JSON file of DeepSpeed"), name, resolved);
  resolved = layered(sources, groups, verb, verb_names, &layer);
  resolved.warnings.insert(resolved.warnings.end(), layer.notes.begin(), layer.notes.end());
  settle_batch(layer, resolved);
  return resolved;
}

}  // namespace tessera
