// Weights that bitsandbytes has saved in NF4 (QuantState.as_dict in bitsandbytes/functional.py): the tensor X holds the
// codes, and X.absmax, X.nested_absmax, X.quant_map, X.nested_quant_map and X.quant_state.bitsandbytes__nf4 the rest.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tessera/base/nf4.h"
#include "tessera/base/view.h"
#include "tessera/store/model_folder.h"

namespace tessera {

class PackedTensors {
 public:
  // The source must outlive this object.
  explicit PackedTensors(const TensorSource& source) : source_(source) {}

  // Whether a tensor is in this form.
  static bool has(const TensorSource& source, const std::string& name);
  // The tensors that hold a packed tensor, and their shapes, for TensorSource::check_tensors(). They do not
  // include state_name(), whose length differs.
  static std::vector<std::pair<std::string, Shape>> parts(const std::string& name, const Shape& shape);
  static std::string state_name(const std::string& name) { return name + ".quant_state.bitsandbytes__nf4"; }
  // The type that the weights had before they were quantized. Throws InputError.
  static DType unpacked_dtype(const TensorSource& source, const std::string& name);

  // Reads the groups [first, last) of a tensor. Throws InputError if its parts contradict each other, or are not of
  // this form. Only one thread at a time may call it.
  void read_groups(const std::string& name, const Shape& shape, int64_t first, int64_t last, Nf4Group* groups) const;
  // Reads elements [begin, end) of the tensor.
  void read(const std::string& name, const Shape& shape, int64_t begin, int64_t end, View values) const;

 private:
  float scale_mean(const std::string& name, const Shape& shape) const;

  const TensorSource& source_;
  mutable std::map<std::string, float> means_;  // of tensors that have been checked
};

}  // namespace tessera
