// Writes GGUF files, version 3: a header with keys and the names of the tensors, then the tensors.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/thread_pool.h"
#include "tessera/base/view.h"
#include "tessera/model/gguf.h"
#include "tessera/store/atomic_folder.h"

namespace tessera {

// The types of tensors, with their numbers in the format.
enum class GgufType : uint32_t {
  f32 = 0,
  f16 = 1,
  q8_0 = 8,  // blocks of 32 values of a row: the scale as f16, and 32 integers of 8 bits
  bf16 = 30,
};

inline constexpr int64_t kQ8Values = 32;  // of a block

const char* name_of(GgufType type);  // as llama.cpp writes it: "Q8_0"
// The bytes of a row with `width` values. For q8_0, `width` must be a multiple of kQ8Values.
int64_t gguf_row_bytes(GgufType type, int64_t width);
// Converts whole rows: `count` values. Rounds to nearest; q8_0 divides a block by its largest magnitude / 127, and
// rounds ties away from zero.
void to_gguf(const float* values, int64_t count, GgufType type, std::byte* target);

struct GgufTensor {
  std::string name;
  Shape shape;  // [rows, width] or [width]; the file has the reverse order
  GgufType type = GgufType::f32;
};

// The file appears complete or not at all (AtomicFile).
class GgufFile {
 public:
  // Creates the file and writes its header. The tensors get places in the given order. Throws RunError.
  GgufFile(const std::filesystem::path& path, const GgufKeys& keys, std::vector<GgufTensor> tensors);

  // Writes a tensor. `values`: f32, with the rows in the order `rows` (gguf.h). Throws RunError, also for a value that
  // is too large for the type.
  void write(std::string_view name, View values, const GgufRows& rows, ThreadPool& pool);
  // All tensors must be written. Throws RunError.
  void commit();

 private:
  struct Place {
    GgufTensor tensor;
    uint64_t begin = 0;  // in the file
    bool written = false;
  };
  struct Layout {
    std::string header;
    std::vector<Place> places;
    uint64_t bytes = 0;  // of the file
  };
  static Layout lay_out(const GgufKeys& keys, std::vector<GgufTensor> tensors);
  GgufFile(const std::filesystem::path& path, Layout layout);

  const std::filesystem::path path_;
  std::vector<Place> places_;
  AtomicFile file_;
};

}  // namespace tessera
