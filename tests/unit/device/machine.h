// A machine with round speeds.
#pragma once

#include "tessera/device/counting/machine.h"

namespace tessera {

// Every product runs at 1e12 FLOP/s, attention at 1e11, kernels move 1e12 bytes/s, copies 1e10, and AdamW on the host
// 1e11.
inline Machine round_machine() {
  Machine m;
  m.name = "a machine";
  m.source = "measured";
  for (const Arithmetic type : {Arithmetic::f32, Arithmetic::bf16}) {
    for (const ProductForm form : {ProductForm::forward, ProductForm::backward_input, ProductForm::backward_weight}) {
      for (const int64_t size : {64, 1024}) m.products.push_back({type, form, size, size, size, 1e12});
    }
    m.attention.push_back({type, false, 64, 1024, 16, 1e11, 1e11});
  }
  m.memory = {{1000, 1e-9}, {1'000'000'000, 1e-3}};
  m.to_device_bytes_per_s = m.to_host_bytes_per_s = 1e10;
  m.host_bytes_per_s = m.host_parameters_bytes_per_s = m.host_moments_bytes_per_s = 1e11;
  m.file_read_bytes_per_s = m.file_write_bytes_per_s = 1e9;
  m.within_node = {1e-5, 1e10};
  m.between_nodes = {1e-4, 1e9};
  return m;
}

}  // namespace tessera
