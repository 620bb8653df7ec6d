// A unit's parameters: one flat array per section, and a table with the position of each tensor in its section.
#pragma once

#include <algorithm>
#include <array>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "tessera/base/nf4.h"
#include "tessera/base/view.h"
#include "tessera/ops/float8_matrix.h"

namespace tessera {

// The initial values of a parameter that is not read from a file.
struct Initializer {
  enum class Kind { zero, one, normal, uniform } kind = Kind::zero;
  double scale = 0;     // normal: standard deviation; uniform: values from −scale to scale
  uint64_t stream = 0;  // random stream; parameters with the same stream, kind and scale get the same values
};

// The sections of a unit. Each section is a flat array with a storage format of its own. It is cut into shards, placed
// on a tier and saved by itself.
enum class Section {
  trainable,
  frozen,     // no gradient, no optimizer state, no update
  quantized,  // frozen weights of linear layers in NF4
};
inline constexpr Section kSections[] = {Section::trainable, Section::frozen, Section::quantized};

template <typename T>
struct PerSection {
  std::array<T, std::size(kSections)> values{};
  T& operator[](Section section) { return values[static_cast<size_t>(section)]; }
  const T& operator[](Section section) const { return values[static_cast<size_t>(section)]; }
};

struct ParameterSpec {
  std::string name;  // as in Hugging Face files, without the prefix "transformer." or "model."
  Shape shape;
  int64_t offset = 0;  // elements of the section from its start
  Initializer init;
  bool decays = false;  // weight decay applies
  Section section = Section::trainable;
  // This tensor follows the previous tensor without a gap. Kernels use both tensors as one, so both are in one section.
  bool joined = false;

  bool trainable() const { return section == Section::trainable; }
  bool quantized() const { return section == Section::quantized; }
  // The elements of the section that hold the tensor. An element of the quantized section is a group of weights
  // (nf4.h).
  int64_t num_elems() const { return quantized() ? nf4_groups(shape.num_elems()) : shape.num_elems(); }
};

// In a section, tensors with weight decay come first, then tensors without weight decay. Any shard of the trainable
// section therefore has at most one boundary between tensors with and without weight decay. Every tensor starts at a
// multiple of kAlignment elements, except joined and quantized tensors. The gaps stay zero.
class ParameterTable {
 public:
  static constexpr int64_t kAlignment = 64;
  static constexpr int64_t alignment(Section section) { return section == Section::quantized ? 1 : kAlignment; }
  using Handle = size_t;
  enum class Gap { aligned, none };

  Handle add(std::string name, Shape shape, Initializer init, bool decays, Gap gap = Gap::aligned);
  // Freezes each tensor whose name makes `frozen` return true. This changes the offsets of tensors. Handles stay valid.
  void freeze(const std::function<bool(const std::string& name)>& frozen);
  // Moves each tensor that makes `wanted` return true to the quantized section. Changes offsets like freeze().
  void quantize(const std::function<bool(const ParameterSpec& spec)>& wanted);

  const std::vector<ParameterSpec>& specs() const { return specs_; }
  int64_t num_elems(Section section) const { return num_elems_[section]; }  // including gaps
  int64_t num_decayed() const { return num_decayed_; }  // of the trainable tensors that decay, including gaps
  int64_t num_parameters() const;                       // of all tensors, without gaps
  int64_t num_trainable_parameters() const;

  // Calls visit(spec, begin, end) for each tensor with elements in the range [first, last) of a section. The range has
  // elements [begin, end) of the tensor, from the range's element spec.offset + begin − first on.
  template <typename Visit>
  void for_each_tensor(Section section, int64_t first, int64_t last, Visit&& visit) const {
    for (const ParameterSpec& spec : specs_) {
      const int64_t begin = std::max(first, spec.offset), end = std::min(last, spec.offset + spec.num_elems());
      if (spec.section == section && begin < end) visit(spec, begin - spec.offset, end - spec.offset);
    }
  }

 private:
  void place();  // computes the offsets of all tensors

  std::vector<ParameterSpec> specs_;
  PerSection<int64_t> num_elems_;
  int64_t num_decayed_ = 0;
};

// The matrices of a section that products read in 8 bits, with the scales of their squares.
struct Float8Weights {
  View codes;   // e4m3, by element of the section
  View scales;  // f32
  std::span<const Float8Place> places;
};

// The parameters of a unit, or their gradients: a flat view of each section.
struct ParameterViews {
  const ParameterTable* table = nullptr;
  PerSection<View> sections;  // gradients have only Section::trainable
  // Sections that were gathered in 8 bits have views here. Their matrices are then unspecified in `sections`.
  PerSection<Float8Weights> weights8 = {};

  const View& trainable() const { return sections[Section::trainable]; }
  // The view of one tensor: its elements of the section. For gradients, it is empty if the parameter is frozen.
  View operator[](ParameterTable::Handle handle) const {
    const ParameterSpec& spec = table->specs()[handle];
    const View& section = sections[spec.section];
    if (!section) return {};
    const Shape shape = spec.quantized() ? Shape{spec.num_elems()} : spec.shape;
    return {section.data + spec.offset * static_cast<int64_t>(size_of(section.dtype)), section.dtype, shape};
  }
  // The rows of the tensors from `first` to `last` (inclusive) as one tensor. These tensors must have no gaps between
  // them, and must not be quantized.
  View joined(ParameterTable::Handle first, ParameterTable::Handle last) const;
};

}  // namespace tessera
