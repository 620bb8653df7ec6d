// A loss that a program computes on the host, in place of the cross-entropy of the head.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "tessera/data/batches.h"
#include "tessera/device/device.h"
#include "tessera/model/unit.h"

namespace tessera {

// A chunk of the rows with loss, in host memory: m rows, V tokens of the vocabulary.
struct LossRows {
  int64_t num_rows = 0, vocab_size = 0;
  float* logits = nullptr;             // [m, V]
  const int32_t* targets = nullptr;    // [m]
  const int32_t* positions = nullptr;  // [m] of the token that predicts the target, in its sequence
  const int64_t* rows = nullptr;       // [m] numbers of the program's rows (PackedBatch::row_numbers), or -1
  // If it is not 0, the function must replace the logits by d_scale times the derivatives of its result.
  double d_scale = 0;
  // The cross-entropy of the rows [first, first + count) with the kernels of the host. The logits of these rows become
  // d_scale · weight times its derivatives. Returns the sum of the losses, times weight.
  std::function<double(int64_t first, int64_t count, double weight)> cross_entropy{};
};
// Returns the sum of the losses of the rows.
using LossOfRows = std::function<double(const LossRows&)>;

// Calls a LossOfRows. If the device's memory is no f32 that the host can read, the logits are copied to f32 in host
// memory and back, so the function sees the values that the device has computed.
class HostLoss final : public OwnLoss {
 public:
  // `host_ops` computes in host memory. All references must outlive the object.
  HostLoss(Device& device, Kernels& host_ops, LossOfRows function)
      : device_(device), ops_(host_ops), function_(std::move(function)) {}

  // The batch whose losses are computed next.
  void begin(const PackedBatch& batch);
  void compute(View logits, int64_t begin, double d_scale, View loss) override;

 private:
  Device& device_;
  Kernels& ops_;
  const LossOfRows function_;
  std::vector<int32_t> targets_, positions_;  // [targets of the batch]
  std::vector<int64_t> rows_;                 // [targets of the batch]
  std::vector<float> values_;                 // a chunk as f32
  std::vector<std::byte> bytes_;              // a chunk as on the device
};

}  // namespace tessera
