// Rules about adapters.
#include <fmt/format.h>

#include <array>

#include "tessera/settings/adapter_options.h"
#include "tessera/settings/rules/rules.h"

namespace tessera {

namespace {

using S = Settings;

// The settings of a new adapter whose values the folder of --init-adapter has.
constexpr std::array kInFolder{
    "lora_r",      "lora_alpha",        "use_rslora",         "lora_target_modules", "lora_exclude_modules",
    "lora_layers", "lora_rank_pattern", "lora_alpha_pattern", "modules_to_save",     "lora_bias"};

std::optional<Fault> settings_of_no_adapter(const ResolvedSettings& resolved) {
  if (!(resolved.groups & kAdapter) || resolved.settings.adapter != S::Adapter::none) return {};
  const S defaults;
  for (const Setting* setting : settings_of(kAdapter)) {
    if (setting->name == "adapter" || !resolved.is_flag(setting->name)) continue;
    if (setting->get(resolved.settings) == setting->get(defaults)) continue;
    return Fault{setting->name, "does nothing without an adapter", "Add --adapter lora"};
  }
  return {};
}

std::optional<Fault> frozen_twice(const ResolvedSettings& resolved) {
  const S& s = resolved.settings;
  if (s.adapter == S::Adapter::none || s.freeze.empty()) return {};
  return Fault{"freeze", "contradicts adapter: training an adapter changes no other tensor",
               "Remove it. --modules-to-save names what is trained with the adapter"};
}

std::optional<Fault> continued_without_adapter(const ResolvedSettings& resolved) {
  const S& s = resolved.settings;
  if (!(resolved.groups & kAdapter) || s.adapter != S::Adapter::none || s.init_adapter.empty()) return {};
  return Fault{
      "init_adapter", "training would not change this adapter, because adapter is \"none\"",
      "Add --adapter lora to continue it. tessera eval evaluates it, and tessera export --merge adds it to the "
      "model"};
}

std::optional<Fault> sizes_of_another_adapter(const ResolvedSettings& resolved) {
  const S& s = resolved.settings;
  if (!(resolved.groups & kAdapter) || s.init_adapter.empty()) return {};
  for (const char* name : kInFolder) {
    if (!resolved.is_flag(name)) continue;
    return Fault{name,
                 fmt::format("the adapter of init_adapter ({}) already has a value", resolved.where("init_adapter")),
                 "Remove it. Only --lora-dropout may be given"};
  }
  return {};
}

std::optional<Fault> adapter_of_random_weights(const ResolvedSettings& resolved) {
  const S& s = resolved.settings;
  if (s.init_adapter.empty() || s.init != S::Init::random) return {};
  return Fault{"init_adapter", "belongs to the weights of a model, but init is \"random\"", "Remove --init random"};
}

std::optional<Fault> trained_in_4_bits(const ResolvedSettings& resolved) {
  const S& s = resolved.settings;
  if (!(resolved.groups & kAdapter) || s.adapter != S::Adapter::none || s.base_dtype != S::BaseDtype::nf4) return {};
  return Fault{"base_dtype", "weights in 4 bits cannot be trained",
               "Add --adapter lora to train an adapter beside them, or remove --base-dtype"};
}

std::optional<Fault> several_adapters(const ResolvedSettings& resolved) {
  const auto count = std::ssize(resolved.settings.init_adapter);
  const bool may_be_several = (resolved.groups & kEvalBatch) && !(resolved.groups & kAdapter);  // eval and generate
  if (count < 2 || !(resolved.groups & kInitAdapter) || may_be_several) return {};
  return Fault{"init_adapter", fmt::format("names {} adapters, but only eval and generate take several", count),
               "Give one of them"};
}

std::optional<Fault> words_of_no_adapter(const ResolvedSettings& resolved) {
  adapter_options(resolved.settings);  // throws if a text is wrong
  return {};
}

}  // namespace

std::span<const Rule> adapter_rules() {
  static constexpr Rule kRules[] = {
      settings_of_no_adapter,    frozen_twice,     continued_without_adapter, sizes_of_another_adapter,
      adapter_of_random_weights, several_adapters, trained_in_4_bits,         words_of_no_adapter};
  return kRules;
}

}  // namespace tessera
