// What a GGUF file, the format of llama.cpp, says about a model: its keys, and the names and rows of its tensors.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tessera/model/config.h"

namespace tessera {

// The value of a key. Each alternative is one type of the format.
using GgufValue = std::variant<uint32_t, int32_t, float, bool, std::string, std::vector<int32_t>, std::vector<float>,
                               std::vector<std::string>>;
struct GgufKey {
  std::string name;
  GgufValue value;
};
using GgufKeys = std::vector<GgufKey>;

// The order of the rows of a tensor. Our files have the rows [A, first, second, inner], row-major, and a GGUF file has
// [A, second, first, inner]. A follows from the number of rows.
struct GgufRows {
  int64_t first = 1, second = 1, inner = 1;

  // Returns which row of our tensor is row `row` of the GGUF tensor.
  int64_t source_of(int64_t row) const {
    const int64_t d = row % inner, i = row / inner % first, j = row / inner / first % second,
                  a = row / inner / first / second;
    return ((a * first + i) * second + j) * inner + d;
  }
};

// A layer in our tables and in GGUF files, without the words of its block and without ".weight".
struct GgufLayer {
  const char *name, *gguf_name;
};

// How the models of one architecture become GGUF files. The functions get valid configurations.
struct GgufForm {
  const char* name;          // the key general.architecture, and the first word of the model's own keys
  const char* block_prefix;  // the tensors of block 3 begin with "layers.3." in our tables, and with "blk.3." there
  std::span<const GgufLayer> layers;
  // Describes what llama.cpp cannot compute, or returns "".
  std::string (*fault_of)(const ModelConfig& config);
  // What llama.cpp computes differently, in words for the user; empty: nothing.
  std::string (*note_of)(const ModelConfig& config);
  // The model's own keys, without the words of the architecture: "block_count".
  GgufKeys (*keys_of)(const ModelConfig& config);
  // The order of the rows of a layer's weight and bias. `layer`: as in `layers`.
  GgufRows (*rows_of)(const ModelConfig& config, std::string_view layer);
  // The tensor rope_freqs.weight; empty: the file has none.
  std::vector<float> (*rope_divisors)(const ModelConfig& config);
};

// How the models of this configuration become GGUF files. Throws UsageError if they cannot.
const GgufForm& gguf_form_of(const ModelConfig& config);

// The layer of a tensor, as in GgufForm::layers: "self_attn.q_proj" for "layers.0.self_attn.q_proj.bias".
std::string_view gguf_layer_of(const GgufForm& form, std::string_view tensor);
// The name in a GGUF file of a tensor of our tables. The form must have its layer.
std::string gguf_name_of(const GgufForm& form, std::string_view tensor);

}  // namespace tessera
