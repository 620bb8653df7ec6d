#include "tessera/model/parameter_table.h"

namespace tessera {

ParameterTable::Handle ParameterTable::add(std::string name, Shape shape, Initializer init, bool decays, Gap gap) {
  TESSERA_ASSERT(!decays || specs_.empty() || specs_.back().decays);
  TESSERA_ASSERT(gap == Gap::aligned || (!specs_.empty() && specs_.back().decays == decays));
  const int64_t offset = gap == Gap::none ? end_ : num_elems_;
  specs_.push_back({std::move(name), shape, offset, init, decays});
  end_ = offset + shape.num_elems();
  num_elems_ = (end_ + kAlignment - 1) / kAlignment * kAlignment;
  if (decays) num_decayed_ = num_elems_;
  return specs_.size() - 1;
}

int64_t ParameterTable::num_parameters() const {
  int64_t n = 0;
  for (const ParameterSpec& spec : specs_) n += spec.shape.num_elems();
  return n;
}

View ParameterViews::joined(ParameterTable::Handle first, ParameterTable::Handle last) const {
  const std::vector<ParameterSpec>& specs = table->specs();
  const View start = (*this)[first];
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
