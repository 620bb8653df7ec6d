// A checkpoint of a run as the source of a model's weights.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/base/record.h"
#include "tessera/store/engine_checkpoint.h"
#include "tessera/store/model_writer.h"

namespace tessera {

// Whether a folder is a checkpoint: it has a manifest.
bool is_checkpoint(const std::filesystem::path& folder);

// The patterns of frozen parameters (--freeze) in a run's fingerprint.
std::vector<std::string> frozen_in(const Record& fingerprint);
// Which weights of the base were quantized in the checkpoint's run.
std::optional<Quantization> quantization_in_checkpoint(const std::filesystem::path& checkpoint);
// The types that the weights had when the checkpoint's run loaded them. Throws InputError.
LoadedTypes loaded_types_in(const std::filesystem::path& checkpoint);

// The parameters in a checkpoint, by their names in the parameter tables. The checkpoint has a config.json.
class CheckpointWeights {
 public:
  // Opens and verifies a checkpoint, and the files that it refers to. Throws errors as Checkpoint::open_verified() and
  // Checkpoint::check_reference() do. Collective.
  CheckpointWeights(const std::filesystem::path& folder, Communicator& world, ThreadPool& pool);

  // Throws InputError if the checkpoint does not have the tensor with this shape.
  void check(const std::string& name, const Shape& shape) const;
  // Reads elements [elem_begin, elem_end) of a flattened tensor into `target`, which is in host memory and has a
  // floating-point type. Only one thread at a time may call it.
  void read_range_into(const std::string& name, int64_t elem_begin, int64_t elem_end, const View& target) const;
  // Like read_range_into(), but gives the values that the checkpoint's run has computed with, even if these are rounded
  // and the run had others (CheckpointReader::read_dequantized()).
  void read_as_computed(const std::string& name, int64_t elem_begin, int64_t elem_end, const View& target) const;
  // Whether read_range_into() reads quantized weights from files, and not as they were rounded.
  bool has_weights_before_quantization() const;
  // Reads the groups [first, last) of a tensor. Returns false if the checkpoint's run has not quantized the tensor.
  bool read_groups(const std::string& name, int64_t first, int64_t last, Nf4Group* groups) const;

 private:
  struct Place {
    int64_t unit;
    const ParameterSpec* spec;
  };

  const Checkpoint checkpoint_;
  const std::unique_ptr<Device> device_;
  const Model model_;  // of the checkpoint's run
  const CheckpointReader reader_;
  std::map<std::string, Place> places_;
};

}  // namespace tessera
