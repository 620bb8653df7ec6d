#include "tessera/model/parameter_table.h"

namespace tessera {

// Places a tensor after the tensor that was placed last. Returns the end of the gap after the new tensor, in elements
// from the start of the flat buffer.
int64_t ParameterTable::append(ParameterSpec& spec) {
  spec.offset = spec.joined ? end_ : num_elems_;
  end_ = spec.offset + spec.shape.num_elems();
  num_elems_ = (end_ + kAlignment - 1) / kAlignment * kAlignment;
  return num_elems_;
}

ParameterTable::Handle ParameterTable::add(std::string name, Shape shape, Initializer init, bool decays, Gap gap) {
  TESSERA_ASSERT(num_frozen() == 0);
  TESSERA_ASSERT(gap == Gap::aligned || (!specs_.empty() && specs_.back().decays == decays));
  specs_.push_back({std::move(name), shape, 0, init, decays, true, gap == Gap::none});
  place();
  return specs_.size() - 1;
}

void ParameterTable::freeze(const std::function<bool(const std::string& name)>& frozen) {
  for (ParameterSpec& spec : specs_) spec.trainable = spec.trainable && !frozen(spec.name);
  place();
}

void ParameterTable::place() {
  num_elems_ = end_ = 0;
  const auto place_part = [&](bool trainable, bool decays) {
    for (ParameterSpec& spec : specs_) {
      if (spec.trainable != trainable || spec.decays != decays) continue;
      append(spec);
    }
    return num_elems_;
  };
  num_decayed_ = place_part(true, true);
  num_trainable_ = place_part(true, false);
  place_part(false, true);
  place_part(false, false);
}

int64_t ParameterTable::num_parameters() const {
  int64_t n = 0;
  for (const ParameterSpec& spec : specs_) n += spec.shape.num_elems();
  return n;
}

int64_t ParameterTable::num_trainable_parameters() const {
  int64_t n = 0;
  for (const ParameterSpec& spec : specs_) n += spec.trainable ? spec.shape.num_elems() : 0;
  return n;
}

View ParameterViews::joined(ParameterTable::Handle first, ParameterTable::Handle last) const {
  const std::vector<ParameterSpec>& specs = table->specs();
  const View start = (*this)[first];
  if (!start) return {};
  Shape shape = start.shape;
  int64_t rows = shape[0], end = specs[first].offset + shape.num_elems();
  for (size_t i = first + 1; i <= last; ++i) {
    const Shape& next = specs[i].shape;
    TESSERA_ASSERT(specs[i].offset == end && next.rank() == shape.rank() && (next.rank() < 2 || next[1] == shape[1]));
    rows += next[0];
    end += next.num_elems();
  }
  shape = shape.rank() == 1 ? Shape{rows} : Shape{rows, shape[1]};
  return {start.data, start.dtype, shape};
}

}  // namespace tessera
