// How the models of Llama's family become GGUF files.
#pragma once

#include "tessera/model/gguf.h"

namespace tessera {

extern const GgufForm kLlamaGguf, kQwen2Gguf, kQwen3Gguf;

}  // namespace tessera
