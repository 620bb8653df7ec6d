#include "tessera/model/llama_config.h"
#include "tessera/model/llama_gguf.h"

namespace tessera {
namespace {

// The sizes of mistralai/Mistral-7B-v0.3.
constexpr LlamaShape kMistralShapes[] = {
    {"mistral-7b", 32768, 4096, 32, 32, 8, 128, 14336, 32768, 1e-5, 1e6, 0, false, 1, 2},
};

constexpr LlamaType kMistralType{
    .name = "mistral",
    .family = "Mistral",
    .class_name = "MistralForCausalLM",
    .block_class = "MistralDecoderLayer",
    .window = LlamaType::Window::always,
    .kv_heads = 8,
    .max_positions = 131072,
    .shapes = kMistralShapes,
    .gguf = &kLlamaGguf,
};

}  // namespace

extern constexpr Architecture kMistral = llama_architecture<kMistralType>();

}  // namespace tessera
