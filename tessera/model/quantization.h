// Bases in 4 bits: which weights of a model are quantized (NF4, base/nf4.h), and the "quantization_config" of
// bitsandbytes in a config.json.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// The weights of linear layers in blocks are quantized, unless training changes them. The head never is.
struct Quantization {
  // The layers whose paths start or end with one of these texts, or contain it between dots, stay as they are.
  std::vector<std::string> skipped = {};

  bool operator==(const Quantization&) const = default;
};

// Whether a layer, such as "model.layers.0.mlp.up_proj", is quantized.
bool quantizes(const Quantization& quantization, std::string_view layer);

// Reads the value of "quantization_config". `where` names the file in errors. Throws InputError if the weights are in
// another form than NF4 with double quantization, as bitsandbytes saves it.
Quantization parse_quantization(const nlohmann::ordered_json& value, const std::string& where);
// The value of "quantization_config" for a model in this form.
nlohmann::ordered_json quantization_json(const Quantization& quantization);

}  // namespace tessera
