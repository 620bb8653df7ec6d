#include "tessera/model/parameter_table.h"

#include "tessera/base/math.h"

namespace tessera {

ParameterTable::Handle ParameterTable::add(std::string name, Shape shape, Initializer init, bool decays, Gap gap) {
  TESSERA_ASSERT(num_elems(Section::frozen) == 0);
  TESSERA_ASSERT(gap == Gap::aligned || (!specs_.empty() && specs_.back().decays == decays));
  specs_.push_back({std::move(name), shape, 0, init, decays, Section::trainable, gap == Gap::none});
  place();
  return specs_.size() - 1;
}

void ParameterTable::freeze(const std::function<bool(const std::string& name)>& frozen) {
  for (ParameterSpec& spec : specs_) {
    if (frozen(spec.name)) spec.section = Section::frozen;
  }
  place();
}

void ParameterTable::quantize(const std::function<bool(const ParameterSpec& spec)>& wanted) {
  for (ParameterSpec& spec : specs_) {
    if (wanted(spec)) spec.section = Section::quantized;
  }
  place();
}

void ParameterTable::place() {
  for (const Section section : kSections) {
    int64_t end = 0, end_with_gap = 0;
    for (const bool decays : {true, false}) {
      for (ParameterSpec& spec : specs_) {
        if (spec.section != section || spec.decays != decays) continue;
        spec.offset = spec.joined ? end : end_with_gap;
        end = spec.offset + spec.num_elems();
        end_with_gap = round_up(end, alignment(section));
      }
      if (section == Section::trainable && decays) num_decayed_ = end_with_gap;
    }
    num_elems_[section] = end_with_gap;
  }
}

int64_t ParameterTable::num_parameters() const {
  int64_t n = 0;
  for (const ParameterSpec& spec : specs_) n += spec.shape.num_elems();
  return n;
}

int64_t ParameterTable::num_trainable_parameters() const {
  int64_t n = 0;
  for (const ParameterSpec& spec : specs_) n += spec.trainable() ? spec.shape.num_elems() : 0;
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
