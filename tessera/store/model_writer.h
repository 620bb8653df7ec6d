// Writes a model as a Hugging Face folder that transformers can load.
#pragma once

#include <array>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tessera/base/thread_pool.h"
#include "tessera/comm/communicator.h"
#include "tessera/engine/states.h"
#include "tessera/model/model.h"
#include "tessera/store/model_shards.h"

namespace tessera {

// The types that tensors of a saved model can have.
inline constexpr std::array kSavedTypes{DType::f32, DType::bf16, DType::f16};

// For each tensor name in the parameter tables, the type of this tensor in the files that the model was loaded from. A
// checkpoint contains these types, because a resumed run must save in the same types even if the files no longer exist.
using LoadedTypes = std::map<std::string, DType>;

// A file of a saved model next to config.json and the weights.
struct ModelFile {
  std::string name;  // in the folder; may be in a subfolder
  std::string text;
};

struct ModelWriterOptions {
  LoadedTypes loaded;
  std::optional<DType>
      dtype;                // of every saved tensor. Unset: its type in `loaded`, or f32 if `loaded` does not have it
  int64_t max_shard_bytes;  // of a file with weights
  std::string base;         // of an adapter: the folder or name of its base
  std::function<std::vector<ModelFile>()> read_files;  // rank 0 calls it once
};

// If the model has an adapter, the saved model is a folder of PEFT with the adapter and what was trained with it.
// All ranks write the folder together. Each rank writes only its own elements, so no rank needs the complete model.
class ModelWriter {
 public:
  // `model`, `world` and `pool` must outlive the writer. Calls options.read_files() now, because the files may be gone
  // when the model is saved. Throws its errors on all ranks. Collective.
  ModelWriter(const Model& model, const ModelWriterOptions& options, Communicator& world, ThreadPool& pool);

  // Gives the name and the text of each file that a checkpoint needs to be a model: config.json, adapter_config.json
  // if the model has an adapter, and the files of options.read_files(). Only for rank 0.
  using WriteText = std::function<void(std::string_view name, std::string_view text)>;
  void write_texts(const WriteText& write_text) const;

  // Whether the saved model has tensors of a section. write() needs only these.
  bool has(Section section) const { return !model_.config().adapter || section == Section::trainable; }
  // The type of a tensor in the saved file. `name`: as in the parameter tables. The saved model must have the tensor.
  DType saved_type(const std::string& name) const { return shards_.place(saved_name(name)).dtype; }
  // Writes elements `range` of a section of a unit (host memory, any floating-point type).
  using Write = UnitStates::WriteParameters;
  // Writes the folder, which appears complete or not at all. It has the weights and the files of write_texts().
  // The folder must be on a file system that all ranks share.
  //
  // `write_part` calls its argument with this rank's elements, and must not communicate. The calls of all ranks
  // together must contain each element exactly once. If a rank fails, every rank throws the same error, and an existing
  // folder stays unchanged. Throws UsageError, InputError or RunError. An element that is not finite in the type of the
  // file is also a RunError. Collective.
  void write(const std::filesystem::path& folder, const std::function<void(const Write&)>& write_part) const;

 private:
  std::string saved_name(const std::string& name) const {
    return model_.config().adapter ? model_.adapter_file_name(name) : model_.file_name(name);
  }
  std::vector<PlannedTensor> planned_tensors() const;
  // Returns the number of elements that this rank has written.
  int64_t write_tensors(const std::filesystem::path& folder, const std::filesystem::path& temporary,
                        const std::function<void(const Write&)>& write_part) const;

  const Model& model_;
  Communicator& world_;
  ThreadPool& pool_;
  const std::string base_;
  const std::vector<DType> dtypes_;  // the type of each tensor: unit by unit, in the order of the unit's table
  const ModelShards shards_;
  std::vector<ModelFile> files_;  // rank 0 only
};

}  // namespace tessera
