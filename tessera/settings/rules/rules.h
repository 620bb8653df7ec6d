// The rules about several settings: which of them contradict each other, need each other, or have no effect.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "tessera/base/option_names.h"
#include "tessera/settings/resolve.h"

namespace tessera {

// Returns what breaks the rule, or nothing. The option of a Fault is the name of a setting.
using Rule = std::optional<Fault> (*)(const ResolvedSettings&);

// The rules by subject. check_consistent() throws the first fault.
std::span<const Rule> training_rules();
std::span<const Rule> adapter_rules();
std::span<const Rule> schedule_rules();
std::span<const Rule> evaluation_rules();
std::span<const Rule> generation_rules();
std::span<const Rule> sharding_rules();
std::span<const Rule> network_rules();

// The value of a setting, as in TOML.
std::string value_text(const Settings& settings, const char* name);

}  // namespace tessera
