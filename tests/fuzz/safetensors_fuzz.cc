// Reads arbitrary bytes as a safetensors file. The header's parser either throws an InputError, or describes tensors
// that cover the data without gaps or overlaps.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "tessera/base/error.h"
#include "tessera/store/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const auto header = tessera::SafetensorsFile::parse_header(std::as_bytes(std::span(data, size)), size, "fuzz");
    uint64_t reached = 0;
    for (const auto& tensor : header.tensors) {
      if (tensor.begin != reached || tensor.num_elems() < 0) std::abort();
      if (tensor.dtype &&
          static_cast<uint64_t>(tensor.num_elems()) * size_of(*tensor.dtype) != tensor.end - tensor.begin)
        std::abort();
      reached = tensor.end;
    }
    if (header.data_begin + reached != size) std::abort();
  } catch (const tessera::InputError&) {
  }
  return 0;
}
