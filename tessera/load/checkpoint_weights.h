// A checkpoint of a run as the source of a model's weights.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tessera/load/model_writer.h"
#include "tessera/report/record.h"
#include "tessera/store/checkpoint.h"

namespace tessera {

// Whether a folder is a checkpoint: it has a manifest.
bool is_checkpoint(const std::filesystem::path& folder);

// The patterns of frozen parameters (--freeze) in a run's fingerprint.
std::vector<std::string> frozen_in(const Record& fingerprint);
// The types that the weights had when the checkpoint's run loaded them. Throws InputError.
LoadedTypes loaded_types_in(const std::filesystem::path& checkpoint);

// The parameters in a checkpoint, by their names in the parameter tables. The checkpoint has a config.json.
class CheckpointWeights {
 public:
  // Opens and verifies a checkpoint. Throws errors as Checkpoint::open_verified() does. Collective.
  CheckpointWeights(const std::filesystem::path& folder, Communicator& world, ThreadPool& pool);

  // Throws InputError if the checkpoint does not have the tensor with this shape.
  void check(const std::string& name, const Shape& shape) const;
  // Reads elements [elem_begin, elem_end) of a flattened tensor into `target`, which is in host memory and has a
  // floating-point type. Only one thread at a time may call it.
  void read_range_into(const std::string& name, int64_t elem_begin, int64_t elem_end, const View& target) const;

 private:
  struct Place {
    std::string array;
    int64_t array_elems, offset;  // of the array, and of the tensor in it
    Shape shape;
  };

  const Checkpoint checkpoint_;
  ThreadPool& pool_;
  std::map<std::string, Place> places_;
};

}  // namespace tessera
