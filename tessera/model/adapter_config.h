// adapter_config.json, the options of an adapter in the format of PEFT (docs/developer_guides/checkpoint.md there).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/model/adapter.h"

namespace tessera {

inline constexpr const char *kAdapterConfig = "adapter_config.json", *kAdapterWeights = "adapter_model.safetensors";
// Begins the names of all tensors in kAdapterWeights; the rest of a name is its path in the base.
inline constexpr std::string_view kAdapterPrefix = "base_model.model.";

// Reads a config. `where` names the file. Throws InputError if a value is invalid, or if an option that Tessera does
// not have changes the mathematics.
AdapterOptions parse_adapter_config(std::string_view text, const std::string& where);

// The options with PEFT's names. Options with equal JSON compute the same.
nlohmann::ordered_json adapter_to_json(const AdapterOptions& options);
// The text of an adapter_config.json. `base`: a folder or a name. `layers`: the paths of the adapted layers, whose
// names replace "all-linear"; if empty, this word stays.
std::string adapter_config_json(const AdapterOptions& options, const std::vector<std::string>& layers,
                                const std::string& base);

}  // namespace tessera
