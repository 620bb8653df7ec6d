#include "tessera/model/llama_config.h"
#include "tessera/model/llama_gguf.h"

namespace tessera {
namespace {

// The sizes of Qwen/Qwen3-*.
constexpr LlamaShape kQwen3Shapes[] = {
    {"qwen3-0.6b", 151936, 1024, 28, 16, 8, 128, 3072, 40960, 1e-6, 1e6, 0, true, 151643, 151645},
    {"qwen3-1.7b", 151936, 2048, 28, 16, 8, 128, 6144, 40960, 1e-6, 1e6, 0, true, 151643, 151645},
    {"qwen3-4b", 151936, 2560, 36, 32, 8, 128, 9728, 40960, 1e-6, 1e6, 0, true, 151643, 151645},
    {"qwen3-8b", 151936, 4096, 36, 32, 8, 128, 12288, 40960, 1e-6, 1e6, 0, false, 151643, 151645},
    {"qwen3-14b", 151936, 5120, 40, 40, 8, 128, 17408, 40960, 1e-6, 1e6, 0, false, 151643, 151645},
    {"qwen3-32b", 151936, 5120, 64, 64, 8, 128, 25600, 40960, 1e-6, 1e6, 0, false, 151643, 151645},
};

constexpr LlamaType kQwen3Type{
    .name = "qwen3",
    .family = "Qwen",
    .class_name = "Qwen3ForCausalLM",
    .block_class = "Qwen3DecoderLayer",
    .may_have_biases = true,
    .head_norms = true,
    .window = LlamaType::Window::some_layers,
    .kv_heads = 32,
    .head_dim = 128,
    .max_positions = 32768,
    .shapes = kQwen3Shapes,
    .gguf = &kQwen3Gguf,
};

}  // namespace

extern constexpr Architecture kQwen3 = llama_architecture<kQwen3Type>();

}  // namespace tessera
