#include "tessera/model/llama_config.h"
#include "tessera/model/llama_gguf.h"

namespace tessera {
namespace {

// The sizes of meta-llama/Llama-3.*.
constexpr LlamaShape kLlamaShapes[] = {
    {"llama-3.2-1b", 128256, 2048, 16, 32, 8, 64, 8192, 131072, 1e-5, 5e5, 32, true, 128000, 128001},
    {"llama-3.2-3b", 128256, 3072, 28, 24, 8, 128, 8192, 131072, 1e-5, 5e5, 32, true, 128000, 128001},
    {"llama-3.1-8b", 128256, 4096, 32, 32, 8, 128, 14336, 131072, 1e-5, 5e5, 8, false, 128000, 128001},
    {"llama-3.1-70b", 128256, 8192, 80, 64, 8, 128, 28672, 131072, 1e-5, 5e5, 8, false, 128000, 128001},
};

constexpr LlamaType kLlamaType{
    .name = "llama",
    .family = "Llama",
    .class_name = "LlamaForCausalLM",
    .block_class = "LlamaDecoderLayer",
    .may_have_biases = true,
    .may_have_mlp_bias = true,
    .shapes = kLlamaShapes,
    .gguf = &kLlamaGguf,
};

}  // namespace

extern constexpr Architecture kLlama = llama_architecture<kLlamaType>();

}  // namespace tessera
