// Adds an adapter to the weights of its base: W + s · B A.
#pragma once

#include <functional>
#include <string>

#include "tessera/base/thread_pool.h"
#include "tessera/load/initial_weights.h"
#include "tessera/model/model.h"

namespace tessera {

// What the rounding to the saved type has lost: the tensor with the largest difference between a sum and the saved
// value.
struct RoundingLoss {
  std::string tensor;  // empty: all sums are saved exactly
  double lost = 0;
  double change = 0;  // the largest |s · B A| of this tensor
};

class MergedModel {
 public:
  // `adapted` has the adapter, and `plain` is the same model without it. Both must outlive this object. `read` gives
  // the tensors of `adapted`; a tensor that was trained whole has its trained values. Throws UsageError if the head has
  // an adapter and is tied to the embedding.
  MergedModel(const Model& adapted, const Model& plain, ReadTensor read, ThreadPool& pool);

  // Writes the parameters of a section of a unit of `plain` to `values`, f32 [elements of the section]. `saved_type`
  // gives the type that a tensor has in the file that they are written to later.
  using SavedType = std::function<DType(const std::string& name)>;
  void read(Section section, int64_t unit, const SavedType& saved_type, View values);
  const RoundingLoss& loss() const { return loss_; }

 private:
  void add(const std::string& layer, const LayerAdapter& adapter, const ParameterSpec& weight, DType saved,
           View values);

  const Model& adapted_;
  const Model& plain_;
  const ReadTensor read_;
  ThreadPool& pool_;
  RoundingLoss loss_;
};

}  // namespace tessera
