#include "tessera/model/gguf.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/base/option_names.h"
#include "tessera/base/text.h"
#include "tessera/model/architecture.h"

namespace tessera {

namespace {

// A tensor's name, in parts: "layers.3." | "self_attn.q_proj" | ".bias".
struct TensorWords {
  std::string_view block, layer, kind;
};

TensorWords words_of(const GgufForm& form, std::string_view tensor) {
  TensorWords words;
  const std::string_view prefix = form.block_prefix;
  if (tensor.starts_with(prefix)) {
    words.block = tensor.substr(0, tensor.find('.', prefix.size()) + 1);
    tensor.remove_prefix(words.block.size());
  }
  const size_t dot = tensor.rfind('.');
  words.layer = tensor.substr(0, dot);
  words.kind = tensor.substr(dot);
  return words;
}

std::string types_with_gguf() {
  std::vector<std::string> names;
  for (const Architecture* architecture : architectures()) {
    if (architecture->gguf) names.push_back(architecture->name);
  }
  return joined(names, ", ");
}

}  // namespace

const GgufForm& gguf_form_of(const ModelConfig& config) {
  const GgufForm* form = architecture_of(config).gguf;
  if (!form) {
    throw UsageError(
        option_place("gguf"), fmt::format("GGUF has no models of the type \"{}\"", config.architecture),
        fmt::format("Remove it to write a Hugging Face folder. These types can be GGUF files: {}", types_with_gguf()));
  }
  if (const std::string fault = form->fault_of(config); !fault.empty()) {
    throw UsageError(option_place("gguf"), "llama.cpp cannot compute this model: " + fault,
                     "Remove it to write a Hugging Face folder");
  }
  return *form;
}

std::string_view gguf_layer_of(const GgufForm& form, std::string_view tensor) {
  return words_of(form, tensor).layer;
}

std::string gguf_name_of(const GgufForm& form, std::string_view tensor) {
  const TensorWords words = words_of(form, tensor);
  const auto layer = std::ranges::find_if(form.layers, [&](const GgufLayer& l) { return words.layer == l.name; });
  TESSERA_ASSERT(layer != form.layers.end());
  std::string block;
  if (!words.block.empty())
    block = "blk." + std::string(words.block.substr(std::string_view(form.block_prefix).size()));
  return block + layer->gguf_name + std::string(words.kind);
}

}  // namespace tessera
