// A unit's parameters: one flat buffer, and a table with the position of each tensor in this buffer.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tessera/base/view.h"

namespace tessera {

// The initial values of a parameter that is not read from a file.
struct Initializer {
  enum class Kind { zero, one, normal, uniform } kind = Kind::zero;
  double scale = 0;     // normal: standard deviation; uniform: values from −scale to scale
  uint64_t stream = 0;  // random stream; parameters with the same stream, kind and scale get the same values
};

struct ParameterSpec {
  std::string name;  // as in Hugging Face files, without the prefix "transformer." or "model."
  Shape shape;
  int64_t offset = 0;  // elements from the start of the unit's flat buffer
  Initializer init;
  bool decays = false;    // weight decay applies
  bool trainable = true;  // otherwise frozen: no gradient, no optimizer state, no update
  // This tensor follows the previous tensor without a gap. Kernels use both tensors as one, so either both are
  // trainable or both are frozen.
  bool joined = false;
};

// In the flat buffer, trainable tensors with weight decay come first, then trainable tensors without weight decay, then
// frozen tensors. The trainable part, and any shard of it, therefore has at most one boundary between tensors with and
// without weight decay. Every tensor starts at a multiple of kAlignment elements, except joined tensors. The gaps stay
// zero.
class ParameterTable {
 public:
  static constexpr int64_t kAlignment = 64;
  using Handle = size_t;
  enum class Gap { aligned, none };

  Handle add(std::string name, Shape shape, Initializer init, bool decays, Gap gap = Gap::aligned);
  // Freezes each tensor whose name makes `frozen` return true. This changes the offsets of tensors. Handles stay valid.
  void freeze(const std::function<bool(const std::string& name)>& frozen);

  const std::vector<ParameterSpec>& specs() const { return specs_; }
  int64_t num_elems() const { return num_elems_; }                    // of the flat buffer, including gaps
  int64_t num_trainable() const { return num_trainable_; }            // of the trainable part, including gaps
  int64_t num_frozen() const { return num_elems_ - num_trainable_; }  // of the frozen part, including gaps
  int64_t num_decayed() const { return num_decayed_; }  // of the tensors that are trainable and decay, including gaps
  int64_t num_parameters() const;                       // of all tensors, without gaps
  int64_t num_trainable_parameters() const;

 private:
  void place();  // computes the offsets of all tensors
  int64_t append(ParameterSpec& spec);

  std::vector<ParameterSpec> specs_;
  int64_t num_elems_ = 0, num_trainable_ = 0, num_decayed_ = 0;
  int64_t end_ = 0;  // end of the tensor that was placed last, without the gap after it
};

// The parameters of a unit, or their gradients: views of the trainable and the frozen part of the flat buffer.
struct ParameterViews {
  const ParameterTable* table = nullptr;
  View flat;         // [num_trainable]
  View frozen = {};  // [num_frozen]; empty for gradients

  // The view of one tensor. For gradients, it is empty if the parameter is frozen.
  View operator[](ParameterTable::Handle handle) const {
    const ParameterSpec& spec = table->specs()[handle];
    const View& part = spec.trainable ? flat : frozen;
    if (!part) return {};
    const int64_t offset = spec.trainable ? spec.offset : spec.offset - table->num_trainable();
    return {part.data + offset * static_cast<int64_t>(size_of(part.dtype)), part.dtype, spec.shape};
  }
  // The rows of the tensors from `first` to `last` (inclusive) as one tensor. These tensors must have no gaps between
  // them.
  View joined(ParameterTable::Handle first, ParameterTable::Handle last) const;
};

}  // namespace tessera
