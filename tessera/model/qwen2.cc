#include "tessera/model/llama_config.h"
#include "tessera/model/llama_gguf.h"

namespace tessera {
namespace {

// The sizes of Qwen/Qwen2.5-*.
constexpr LlamaShape kQwen2Shapes[] = {
    {"qwen2.5-0.5b", 151936, 896, 24, 14, 2, 64, 4864, 32768, 1e-6, 1e6, 0, true, 151643, 151643},
    {"qwen2.5-1.5b", 151936, 1536, 28, 12, 2, 128, 8960, 131072, 1e-6, 1e6, 0, true, 151643, 151643},
    {"qwen2.5-3b", 151936, 2048, 36, 16, 2, 128, 11008, 32768, 1e-6, 1e6, 0, true, 151643, 151643},
    {"qwen2.5-7b", 152064, 3584, 28, 28, 4, 128, 18944, 131072, 1e-6, 1e6, 0, false, 151643, 151643},
    {"qwen2.5-14b", 152064, 5120, 48, 40, 8, 128, 13824, 131072, 1e-5, 1e6, 0, false, 151643, 151643},
    {"qwen2.5-32b", 152064, 5120, 64, 40, 8, 128, 27648, 131072, 1e-5, 1e6, 0, false, 151643, 151643},
    {"qwen2.5-72b", 152064, 8192, 80, 64, 8, 128, 29568, 131072, 1e-5, 1e6, 0, false, 151643, 151643},
};

constexpr LlamaType kQwen2Type{
    .name = "qwen2",
    .family = "Qwen",
    .class_name = "Qwen2ForCausalLM",
    .block_class = "Qwen2DecoderLayer",
    .biases_always = true,
    .window = LlamaType::Window::some_layers,
    .kv_heads = 32,
    .max_positions = 32768,
    .shapes = kQwen2Shapes,
    .gguf = &kQwen2Gguf,
};

}  // namespace

extern constexpr Architecture kQwen2 = llama_architecture<kQwen2Type>();

}  // namespace tessera
