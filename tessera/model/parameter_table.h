// A unit's parameters: one flat buffer, and a table with the position of each tensor in it.
#pragma once

#include <string>
#include <vector>

#include "tessera/base/view.h"

namespace tessera {

// The initial values of a parameter that is not read from a file.
struct Initializer {
  enum class Kind { zero, one, normal, uniform } kind = Kind::zero;
  double scale = 0;     // normal: standard deviation around 0; uniform: half the width around 0
  uint64_t stream = 0;  // parameters with the same stream start with the same values
};

struct ParameterSpec {
  std::string name;  // as in the Hugging Face file, without the optional prefix "transformer."
  Shape shape;
  int64_t offset = 0;  // elements from the start of the unit's flat buffer
  Initializer init;
  bool decays = false;  // weight decay applies
};

// Tensors with weight decay come first. A flat buffer, and any shard of it, then has one boundary between the two
// groups. Every tensor starts at a multiple of kAlignment elements, and the gaps stay zero. Tensors that a kernel uses
// as one tensor follow one another without a gap.
class ParameterTable {
 public:
  static constexpr int64_t kAlignment = 64;
  using Handle = size_t;
  enum class Gap { aligned, none };

  Handle add(std::string name, Shape shape, Initializer init, bool decays, Gap gap = Gap::aligned);

  const std::vector<ParameterSpec>& specs() const { return specs_; }
  int64_t num_elems() const { return num_elems_; }  // of the flat buffer, including gaps
  int64_t num_decayed() const { return num_decayed_; }
  int64_t num_parameters() const;  // without gaps

 private:
  std::vector<ParameterSpec> specs_;
  int64_t num_elems_ = 0, num_decayed_ = 0;
  int64_t end_ = 0;  // of the last tensor, without the gap after it
};

// A flat buffer with its table: the parameters of a unit, or their gradients.
struct ParameterViews {
  const ParameterTable* table = nullptr;
  View flat;  // [num_elems]

  View operator[](ParameterTable::Handle handle) const {
    const ParameterSpec& spec = table->specs()[handle];
    return {flat.data + spec.offset * static_cast<int64_t>(size_of(flat.dtype)), flat.dtype, spec.shape};
  }
  // The rows of consecutive tensors without gaps between them, as one tensor.
  View joined(ParameterTable::Handle first, ParameterTable::Handle last) const;
};

}  // namespace tessera
