// How BLOOM's models become GGUF files.
#pragma once

#include "tessera/model/gguf.h"

namespace tessera {

extern const GgufForm kBloomGguf;

}  // namespace tessera
