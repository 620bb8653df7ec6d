// Folders of adapters in PEFT's format: adapter_config.json and adapter_model.safetensors.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "tessera/model/model.h"
#include "tessera/settings/settings.h"
#include "tessera/store/safetensors.h"

namespace tessera {

// The folder that --init-adapter means: itself, or the folder `model` of a run. Throws InputError if it has no adapter.
std::filesystem::path adapter_folder_of(const Settings& settings);

// The adapter of a model: of --init-adapter, of --adapter lora, or of the checkpoint that --model names. nullopt: the
// model has none. Throws UsageError and InputError.
std::optional<AdapterOptions> adapter_of(const Settings& settings);
// The adapter of the run that made a checkpoint.
std::optional<AdapterOptions> adapter_in_checkpoint(const std::filesystem::path& checkpoint);

// The tensors of an adapter, by their names in the tables of the adapted model.
class AdapterFile {
 public:
  // Throws InputError if a tensor of the adapter is missing, is none of the model, or has another shape. The model must
  // outlive this object.
  AdapterFile(const std::filesystem::path& folder, const Model& model);

  std::string checksum() const;  // of the names and values of all tensors
  // Reads elements [elem_begin, elem_end) of a flattened tensor. Throws InputError if a value is not finite.
  void read_range_into(const std::string& name, int64_t elem_begin, int64_t elem_end, const View& target) const;

 private:
  const Model& model_;
  const SafetensorsFile file_;
};

// Throws what AdapterFile throws for the adapter of --adapter and this model. Reads no values.
void check_adapter_file(const Settings& settings, const ModelConfig& config);

}  // namespace tessera
