// The time of a kernel on a machine, from the sizes of its arrays. A kernel that is no product and no attention takes
// the time to read and write its arrays.
#pragma once

#include <array>
#include <map>

#include "tessera/device/counting/counting_device.h"
#include "tessera/ops/kernels.h"

namespace tessera {

// Adds the times of kernels to the timeline of a counting device. Without a timeline, all functions do nothing.
class KernelTimes {
 public:
  KernelTimes(Device& device, bool tf32) : device_(device), timeline_(timeline_of(device)), tf32_(tf32) {}

  // A kernel that reads and writes these arrays once. `name`: of the kernel, a literal. `passes`: how much longer it
  // takes than that; measured on an H200.
  void arrays(const char* name, std::initializer_list<View> arrays, double passes = 1);
  void product(ProductForm form, View rows /*[N, I]*/, int64_t out);
  void attention(const AttentionShape& shape, View qkv, int64_t num_sequences, bool backward);
  void adamw(const Kernels::AdamWArrays& arrays, AdamWWrites writes);

 private:
  Device& device_;
  Timeline* timeline_;
  const bool tf32_;
  std::map<std::array<int64_t, 5>, double> product_rates_;  // by type, form and shape
};

}  // namespace tessera
