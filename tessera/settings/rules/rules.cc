#include "tessera/settings/rules/rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "tessera/base/error.h"
#include "tessera/base/text.h"
#include "tessera/model/architecture.h"
#include "tessera/settings/engine_options.h"

namespace tessera {

namespace {

// Sizes for a model that already has a shape. Default values from a file or the environment are no fault. Nor are sizes
// from a source of lower precedence than the source of `model`, because such sizes belong to another model.
std::optional<Fault> sizes_of_another_model(const ResolvedSettings& resolved) {
  const std::string& model = resolved.settings.model;
  if (model.empty() || has_free_sizes(model)) return {};
  const Settings defaults;
  for (const Setting* setting : settings_of(resolved.groups & (kShape | kVocabulary))) {
    if (!resolved.is_flag(setting->name) && setting->get(resolved.settings) == setting->get(defaults)) continue;
    if (resolved.origins.at(setting->name).kind < resolved.origins.at("model").kind) continue;
    if (setting->group == kVocabulary) {
      return Fault{setting->name, fmt::format("the model \"{}\" already defines the size of its vocabulary", model),
                   "Remove it. For another size, change \"vocab_size\" in a copy of the model's config.json and "
                   "give the copy as --model with --init random"};
    }
    const std::string free = joined(names_with_free_sizes(), "|");
    return Fault{
        setting->name,
        fmt::format("applies only to a new model \"{}\", but the model \"{}\" already has a shape", free, model),
        fmt::format("Remove it, or give --model {} --init random", free)};
  }
  return {};
}

std::optional<Fault> heads_of_unequal_width(const ResolvedSettings& resolved) {
  const Settings& s = resolved.settings;
  if (s.hidden_size % s.num_heads == 0) return {};
  return Fault{"hidden_size", fmt::format("{} is not divisible by num_heads {}", s.hidden_size, s.num_heads),
               "Make --hidden-size a multiple of --num-heads"};
}

std::optional<Fault> two_memories_of_a_device(const ResolvedSettings& resolved) {
  if (resolved.settings.fit == 0 || resolved.settings.device_memory == 0) return {};
  return Fault{"device_memory", "contradicts fit", "Give only one of the two: both set the memory per rank"};
}

// A run has the speeds of its machine. Only its search may use others.
std::optional<Fault> machine_without_search(const ResolvedSettings& resolved) {
  const Settings& s = resolved.settings;
  const bool trains = resolved.groups & kPlan && !(resolved.groups & kPlanOutput);
  const bool searches = s.fit != 0 || s.activation_checkpointing.automatic || s.offload.has_automatic();
  if (!trains || s.machine.empty() || searches) return {};
  return Fault{"machine", "only the search of fit uses it", "Remove it, or add --fit"};
}

std::optional<Fault> comparison_as_json(const ResolvedSettings& resolved) {
  if (!(resolved.groups & kPlanOutput) || resolved.groups == kAllGroups) return {};
  if (resolved.settings.compare.empty() || !resolved.settings.json) return {};
  return Fault{"compare", "prints a table, not JSON", "Leave out --json, or write both plans with --json"};
}

// A picture shows the plan of a run. Without a model, --compare only reads plans.
std::optional<Fault> picture_without_model(const ResolvedSettings& resolved) {
  if (!(resolved.groups & kPlanOutput) || resolved.groups == kAllGroups) return {};
  const Settings& s = resolved.settings;
  if (s.svg.empty() || !s.model.empty() || s.compare.empty()) return {};
  return Fault{"svg", "draws the plan of a run, but the command has no --model", "Add --model, or leave out --svg"};
}

std::optional<Fault> types_of_another_format(const ResolvedSettings& resolved) {
  const Settings& s = resolved.settings;
  if (!(resolved.groups & kGguf) || resolved.groups == kAllGroups) return {};
  if (s.gguf == Settings::Gguf::none) {
    if (!resolved.is_flag("overwrite") || !s.overwrite) return {};
    return Fault{"overwrite",
                 "does nothing without gguf: an export replaces a model folder that Tessera wrote, and no other folder",
                 "Remove it"};
  }
  for (const char* name : {"save_dtype", "max_shard_size"}) {
    if (!resolved.is_flag(name)) continue;
    return Fault{name, "applies to Hugging Face folders, not to gguf", "Remove it, and give the type as --gguf TYPE"};
  }
  return {};
}

// doctor takes the settings of a machine for --measure, which only some of them change.
std::optional<Fault> flag_without_measurement(const ResolvedSettings& resolved) {
  if (!(resolved.groups & kMeasure) || resolved.groups == kAllGroups) return {};
  constexpr std::array kMeasured{"device", "threads", "instruction_set"};
  for (const Setting* setting : settings_of(kMachine)) {
    if (!resolved.is_flag(setting->name)) continue;
    if (!resolved.settings.measure)
      return Fault{setting->name, "applies only to --measure", "Add --measure, or remove it"};
    if (std::ranges::find(kMeasured, setting->name) != kMeasured.end()) continue;
    return Fault{setting->name, "does not change what --measure measures", "Remove it"};
  }
  return {};
}

constexpr Rule kModelRules[] = {sizes_of_another_model};
constexpr Rule kOtherRules[] = {heads_of_unequal_width,  two_memories_of_a_device, comparison_as_json,
                                picture_without_model,   machine_without_search,   types_of_another_format,
                                flag_without_measurement};

}  // namespace

std::string value_text(const Settings& settings, const char* name) {
  return toml_text(find_setting(name)->get(settings));
}

void check_consistent(const ResolvedSettings& resolved) {
  const std::span<const Rule> all[] = {training_rules(),   adapter_rules(), schedule_rules(),
                                       evaluation_rules(), kModelRules,     generation_rules(),
                                       sharding_rules(),   network_rules(), kOtherRules};
  for (const std::span<const Rule> rules : all) {
    for (const Rule rule : rules) {
      if (const auto fault = rule(resolved)) {
        throw UsageError(resolved.where(fault->option), fault->what, fault->remedy);
      }
    }
  }
}

void check_supported(const ResolvedSettings& resolved) {
  using S = Settings;
  const S& s = resolved.settings;
  if (s.precision != S::Precision::tf32 || !(find_setting("precision")->group & resolved.groups)) return;
  const bool plans = resolved.groups & kPlanOutput && resolved.groups != kAllGroups && s.device != S::DeviceChoice::cpu;
  if (plans || uses_cuda(s)) return;
  throw UsageError(resolved.where("precision"), "\"tf32\" needs a GPU", "The CPU supports: fp32, fp16, bf16");
}

}  // namespace tessera
