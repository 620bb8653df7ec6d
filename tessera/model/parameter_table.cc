#include "tessera/model/parameter_table.h"

namespace tessera {

ParameterTable::Handle ParameterTable::add(std::string name, Shape shape, Initializer init, bool decays) {
  TESSERA_ASSERT(!decays || specs_.empty() || specs_.back().decays);
  specs_.push_back({std::move(name), shape, num_elems_, init, decays});
  num_elems_ += (shape.num_elems() + kAlignment - 1) / kAlignment * kAlignment;
  if (decays) num_decayed_ = num_elems_;
  return specs_.size() - 1;
}

int64_t ParameterTable::num_parameters() const {
  int64_t n = 0;
  for (const ParameterSpec& spec : specs_) n += spec.shape.num_elems();
  return n;
}

}  // namespace tessera
