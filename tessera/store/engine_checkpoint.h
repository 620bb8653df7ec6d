// The arrays of an engine in a checkpoint: parameters and optimizer states of each unit, under the unit's name.
#pragma once

#include <optional>
#include <set>
#include <string>

#include "tessera/engine/states.h"
#include "tessera/store/checkpoint.h"
#include "tessera/store/model_folder.h"
#include "tessera/store/packed_tensors.h"

namespace tessera {

// The name of a unit's array in a checkpoint. A checkpoint holds the blocks of quantized moments as bytes: each element
// of the engine's array is size_of() elements of type u8.
std::string array_name(StateKind kind, const Unit& unit);

// Frozen sections that model files hold. The checkpoints of the run refer to these files instead of holding the
// sections.
struct FrozenFiles {
  ReferencedFiles files;
  std::set<std::string> arrays;  // the names of the sections' arrays
};
// The frozen sections that a checkpoint refers to. Does not have those that its run used in another type than `states`:
// this type has rounded their values.
FrozenFiles frozen_files_of(const Checkpoint& checkpoint, const UnitStates& states);

// Declares the ranges that this rank writes: its parts of a training engine's arrays, except the frozen sections in
// `frozen`.
void declare_checkpoint(CheckpointPart& part, const UnitStates& states, const FrozenFiles& frozen);
// Declares the same ranges and writes them.
void write_checkpoint_arrays(CheckpointPart& part, UnitStates states, const FrozenFiles& frozen);

// Reads the arrays of a model from a checkpoint, also from the files that the checkpoint refers to.
class CheckpointReader {
 public:
  // Checks the files that the checkpoint refers to (Checkpoint::check_reference()). The arguments must outlive this
  // object. Collective.
  CheckpointReader(const Checkpoint& checkpoint, const Model& model, Communicator& world, ThreadPool& pool);
  // Copies elements `range` of an array to `to`, which is in host memory. `to` has any floating-point type, for moments
  // also their quantized type, or nf4 for quantized parameters. Converts between the types of moments. Throws errors as
  // Checkpoint::read_range() does. Only one thread at a time may call it.
  void read(StateKind kind, int64_t unit, ElemRange range, View to) const;

  // Reads elements [begin, end) of a quantized tensor as floating-point numbers. read_dequantized() gives those that
  // the run has computed with. read_weights() gives those that were quantized, if the checkpoint refers to files with
  // them.
  void read_weights(const ParameterSpec& spec, int64_t unit, int64_t begin, int64_t end, View to) const;
  void read_dequantized(const ParameterSpec& spec, int64_t unit, int64_t begin, int64_t end, View to) const;

 private:
  void read_groups(const ParameterSpec& spec, int64_t first, int64_t last, Nf4Group* groups) const;
  void read_referenced(StateKind kind, int64_t unit, ElemRange range, View to, DType format) const;
  void read_quantized(StateKind kind, const ArrayRange& range, View to) const;

  const Checkpoint& checkpoint_;
  const Model& model_;
  ThreadPool& pool_;
  std::optional<TensorSource> files_;  // that the checkpoint refers to
  std::optional<PackedTensors> packed_;
  mutable Nf4Quantizer quantizer_;
};

// Reads this rank's parameters and, when training, its moments into the engine, as CheckpointReader does. Collective.
void restore_checkpoint(const Checkpoint& checkpoint, UnitStates states, Communicator& world, ThreadPool& pool);
// Reads only the trainable parameters.
void restore_trained_parameters(const Checkpoint& checkpoint, UnitStates states, ThreadPool& pool);

}  // namespace tessera
