#include "tessera/model/parameter_table.h"

namespace tessera {

static int64_t aligned(const Shape& shape) {
  constexpr int64_t kAlignment = ParameterTable::kAlignment;
  return (shape.num_elems() + kAlignment - 1) / kAlignment * kAlignment;
}

ParameterTable::Handle ParameterTable::add(std::string name, Shape shape, Initializer init, bool decays) {
  TESSERA_ASSERT(num_frozen() == 0 && (!decays || specs_.empty() || specs_.back().decays));
  specs_.push_back({std::move(name), shape, num_elems_, init, decays});
  num_elems_ += aligned(shape);
  num_trainable_ = num_elems_;
  if (decays) num_decayed_ = num_elems_;
  return specs_.size() - 1;
}

void ParameterTable::freeze(const std::function<bool(const std::string& name)>& frozen) {
  for (ParameterSpec& spec : specs_) spec.trainable = spec.trainable && !frozen(spec.name);
  num_elems_ = 0;
  const auto place = [&](bool trainable, bool decays) {
    for (ParameterSpec& spec : specs_) {
      if (spec.trainable != trainable || spec.decays != decays) continue;
      spec.offset = num_elems_;
      num_elems_ += aligned(spec.shape);
    }
    return num_elems_;
  };
  num_decayed_ = place(true, true);
  num_trainable_ = place(true, false);
  place(false, true);
  place(false, false);
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

}  // namespace tessera
