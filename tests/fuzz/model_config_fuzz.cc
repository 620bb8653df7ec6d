// Reads arbitrary bytes as a model's config.json, writes the configuration and reads it again. Each of the two reads
// may throw an InputError. If neither throws, both configurations must have the same values in the compared fields.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "tessera/base/error.h"
#include "tessera/model/config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  try {
    const ModelConfig config = parse_model_config({reinterpret_cast<const char*>(data), size}, "fuzz");
    const ModelConfig again = parse_model_config(model_config_json(config, DType::f16), "written");
    TESSERA_ASSERT(again.architecture == config.architecture && again.vocab_size == config.vocab_size);
    TESSERA_ASSERT(again.hidden_size == config.hidden_size && again.num_layers == config.num_layers);
    TESSERA_ASSERT(again.num_heads == config.num_heads && again.ff_dim == config.ff_dim);
    TESSERA_ASSERT(again.kv_heads() == config.kv_heads() && again.head_dim() == config.head_dim());
    TESSERA_ASSERT(again.rope == config.rope && again.tied_head == config.tied_head);
    TESSERA_ASSERT(again.eos_token_id == config.eos_token_id);
  } catch (const InputError&) {
  }
  return 0;
}
