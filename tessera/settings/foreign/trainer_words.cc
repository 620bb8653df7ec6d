#include "tessera/settings/foreign/trainer_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "tessera/base/error.h"
#include "tessera/base/json.h"
#include "tessera/base/text.h"
#include "tessera/settings/foreign/fsdp_words.h"
#include "tessera/settings/setting_words.h"

namespace tessera {

namespace {

using nlohmann::json;

bool is_given(const ResolvedSettings& resolved, const char* name) {
  return resolved.origins.contains(name) && resolved.is_given(name);
}

const Setting& setting_named(const char* name) {
  const Setting* setting = find_setting(name);
  TESSERA_ASSERT(setting);
  return *setting;
}

// fp16 = true selects the precision fp16. fp16 = false changes the precision fp16 to fp32, but only if a source of
// lower precedence selected fp16. The same holds for bf16, and bf16 = false also changes `auto`, which may become bf16.
// If a file has fp16 = false and also selects fp16 through FSDP's mixed precision, fp16 = false changes nothing,
// because in the Trainer this flag switches only autocast.
void apply_precision(ResolvedSettings& resolved) {
  const Settings& s = resolved.settings;
  const auto kind_of = [&](const char* name) { return resolved.origins.at(name).kind; };
  const bool fp16 = is_given(resolved, "fp16") && s.fp16, bf16 = is_given(resolved, "bf16") && s.bf16;
  if (fp16 && bf16 && kind_of("fp16") == kind_of("bf16")) {
    throw UsageError(resolved.where("fp16"), fmt::format("true contradicts {} true", resolved.where("bf16")),
                     "Give only one of the two");
  }
  const Setting& precision = setting_named("precision");
  if (fp16 || bf16) {
    const bool is_fp16 = fp16 && (!bf16 || kind_of("fp16") > kind_of("bf16"));
    set_implied(resolved, is_fp16 ? "fp16" : "bf16", precision, is_fp16 ? "fp16" : "bf16");
    return;
  }
  for (const auto& [name, is_on] : {std::pair{"fp16", s.fp16}, std::pair{"bf16", s.bf16}}) {
    const SettingValue current = precision.get(resolved.settings);
    const bool may_become_bf16 = s.precision == Settings::Precision::automatic && std::string_view(name) == "bf16";
    const bool excluded = current == SettingValue(std::string(name)) || may_become_bf16;
    if (!is_given(resolved, name) || is_on || !excluded || kind_of("precision") >= kind_of(name)) continue;
    set_implied(resolved, name, precision, "fp32");
  }
}

// Sets `tracker` to the trackers in report_to. Spaces or commas separate them there.
void apply_trackers(ResolvedSettings& resolved) {
  const std::string& text = resolved.settings.report_to;
  const std::string where = resolved.where("report_to");
  std::vector<std::string> trackers;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find_first_of(" ,", begin), text.size());
    const std::string word = lower(std::string_view(text).substr(begin, end - begin));
    begin = end + 1;
    if (!word.empty() && word != "none") trackers.push_back(word);
  }
  if (trackers.empty()) return;
  const Setting& tracker = *find_setting("tracker");
  set_implied(resolved, "report_to", tracker, checked_value(tracker, joined(trackers, ","), where));
}

// Converts a value of an FSDP file. Returns nothing for null. Joins an array of texts with commas.
std::optional<SettingValue> value_of(const json& value, const std::string& where) {
  if (value.is_null()) return std::nullopt;
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number_integer()) return value.get<int64_t>();
  if (value.is_number()) return value.get<double>();
  if (value.is_string()) return value.get<std::string>();
  std::vector<std::string> words;
  if (value.is_array()) {
    for (const json& word : value) {
      if (word.is_string()) words.push_back(word.get<std::string>());
    }
    if (words.size() == value.size()) return joined(words, ",");
  }
  throw UsageError(where, "must be a text, a number, true, false or an array of texts");
}

void apply_fsdp_file(ResolvedSettings& resolved) {
  const std::string name = resolved.settings.fsdp_config;
  json root;
  try {
    root = parse_json(read_config_text(name, "--fsdp-config needs a JSON file of the Trainer"), name);
  } catch (const InputError& error) {
    throw UsageError("", error.what());
  }
  if (!root.is_object()) throw UsageError(name, "must be a JSON object");
  std::vector<std::string> ignored;
  const auto apply = [&](const std::string& key, const json& value) {
    const std::string where = fmt::format("{}: {}", name, key);
    const auto converted = value_of(value, where);
    if (!converted) return;
    const FsdpMeaning meaning = meaning_of_fsdp_key(key, *converted, where);
    if (!meaning.note.empty()) ignored.push_back(meaning.note);
    for (const auto& [setting, implied] : meaning.values) set_implied(resolved, "fsdp_config", *setting, implied);
  };
  for (const auto& [key, value] : root.items()) {
    if (!value.is_object()) {
      apply(key, value);
      continue;
    }
    for (const auto& [inner, inner_value] : value.items()) apply(key + "." + inner, inner_value);
  }
  if (ignored.empty()) return;
  resolved.warnings.push_back(fmt::format("{}: these keys are ignored, because they have no effect in Tessera: {}",
                                          name, joined(ignored, ", ")));
}

// The settings that stand for the Trainer's parameters of a schedule.
constexpr std::pair<const char*, const char*> kScheduleKeys[] = {{"num_cycles", "lr_num_cycles"},
                                                                 {"power", "lr_power"},
                                                                 {"timescale", "lr_timescale"},
                                                                 {"lr_end", "min_lr"},
                                                                 {"min_lr", "min_lr"},
                                                                 {"min_lr_rate", "min_lr_rate"},
                                                                 {"min_lr_ratio", "min_lr_rate"},
                                                                 {"decay_type", "decay_type"},
                                                                 {"warmup_type", "warmup_type"},
                                                                 {"num_decay_steps", "num_decay_steps"}};

void apply_schedule_keys(ResolvedSettings& resolved) {
  const std::string where = resolved.where("lr_scheduler_kwargs");
  json root;
  try {
    root = parse_json(resolved.settings.lr_scheduler_kwargs, where);
  } catch (const InputError& error) {
    throw UsageError("", error.what(), "Write a JSON object, for example {\"min_lr\": 1e-6}");
  }
  if (!root.is_object()) throw UsageError(where, "must be a JSON object", "Write for example {\"min_lr\": 1e-6}");
  for (const auto& [key, value] : root.items()) {
    const std::string place = fmt::format("{}: {}", where, key);
    const auto* known = std::ranges::find(kScheduleKeys, key, [](const auto& pair) { return pair.first; });
    if (known == std::end(kScheduleKeys)) {
      std::vector<std::string> keys;
      for (const auto& pair : kScheduleKeys) keys.emplace_back(pair.first);
      throw UsageError(place, "is not a parameter of a schedule", "Use one of: " + joined(keys, ", "));
    }
    const auto converted = value_of(value, place);
    if (!converted) continue;  // null: the default
    const Setting& setting = setting_named(known->second);
    set_implied(resolved, "lr_scheduler_kwargs", setting, checked_value(setting, *converted, place));
  }
}

// Applies the settings that give the lowest rate in another way: as a fraction of --lr, or by the schedule's default.
void apply_schedule(ResolvedSettings& resolved) {
  Settings& s = resolved.settings;
  if (is_given(resolved, "lr_scheduler_kwargs") && !s.lr_scheduler_kwargs.empty()) apply_schedule_keys(resolved);
  if (is_given(resolved, "min_lr_rate")) {
    set_implied(resolved, "min_lr_rate", setting_named("min_lr"), s.min_lr_rate * s.lr);
  }
  constexpr double kEndOfPolynomial = 1e-7;  // the Trainer's default
  if (s.lr_schedule == Schedule::polynomial && !is_given(resolved, "min_lr") && s.warmup_min_lr == 0) {
    s.min_lr = kEndOfPolynomial;
  }
}

}  // namespace

void set_implied(ResolvedSettings& resolved, const std::string& by, const Setting& setting, const SettingValue& value) {
  const auto current = resolved.origins.find(setting.name);
  if (current == resolved.origins.end()) return;  // not a setting of this verb
  const Origin origin = resolved.origins.at(by);
  if (current->second.kind > origin.kind) return;
  if (current->second.kind == origin.kind && setting.get(resolved.settings) != value) {
    throw UsageError(resolved.where(by),
                     fmt::format("{} contradicts {} {}", quoted_value(find_setting(by)->get(resolved.settings)),
                                 resolved.where(setting.name), toml_text(setting.get(resolved.settings))),
                     "Give only one of the two");
  }
  setting.set(resolved.settings, value);
  current->second = origin;
}

void apply_trainer_words(ResolvedSettings& resolved) {
  const Settings& s = resolved.settings;
  if (is_given(resolved, "fsdp") && !s.fsdp.empty()) {
    for (const auto& [setting, value] : meaning_of_fsdp_option(s.fsdp, resolved.where("fsdp")).values) {
      set_implied(resolved, "fsdp", *setting, value);
    }
  }
  if (is_given(resolved, "fsdp_config") && !s.fsdp_config.empty()) apply_fsdp_file(resolved);
  if (resolved.origins.contains("precision")) apply_precision(resolved);
  if (is_given(resolved, "gradient_checkpointing")) {
    const Setting& blocks = setting_named("activation_checkpointing");
    set_implied(resolved, "gradient_checkpointing", blocks,
                checked_value(blocks, s.gradient_checkpointing ? "block" : "none", ""));
  }
  if (is_given(resolved, "report_to")) apply_trackers(resolved);
  if (resolved.groups & kOptimization) apply_schedule(resolved);
}

}  // namespace tessera
