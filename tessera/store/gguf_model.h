// Writes a model as a GGUF file.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "tessera/base/thread_pool.h"
#include "tessera/model/model.h"
#include "tessera/store/gguf_file.h"

namespace tessera {

class GgufModel {
 public:
  // `keys`: of the tokenizer. `name`: of the model. Vectors and norms keep f32. A matrix whose rows a type cannot
  // divide into blocks gets f16. Throws UsageError if the model cannot be a GGUF file. `model` must outlive this
  // object.
  GgufModel(const Model& model, GgufType type, const std::string& name, GgufKeys keys);

  // Writes a section of a unit: f32 [elements of the section].
  using Write = std::function<void(Section section, int64_t unit, View values)>;
  // Writes the file, which appears complete or not at all. `write_part` calls its argument for every section that has
  // elements. Throws RunError.
  void write(const std::filesystem::path& path, ThreadPool& pool,
             const std::function<void(const Write&)>& write_part) const;

  // The matrices that have f16 instead of the type.
  const std::vector<std::string>& without_blocks() const { return without_blocks_; }
  // What llama.cpp computes differently; empty: nothing.
  std::string note() const { return form_.note_of(model_.config()); }

 private:
  const Model& model_;
  const GgufForm& form_;
  const std::vector<float> divisors_;  // rope_freqs.weight; may be empty
  GgufKeys keys_;
  std::vector<GgufTensor> tensors_;
  std::vector<std::string> without_blocks_;
};

}  // namespace tessera
