#include "tessera/ops/kernels.h"

#include "tessera/ops/back_ends.h"
#include "tessera/ops/cpu/cpu_kernels.h"

namespace tessera {

std::unique_ptr<Kernels> make_kernels(Device& device, bool allow_tf32) {
  switch (device.kind()) {
    case DeviceKind::cpu:
      return make_emulated_kernels(device, std::make_unique<cpu::CpuKernels>(device));
    case DeviceKind::cuda:
      return make_cuda_kernels(device, allow_tf32);
    case DeviceKind::counting:
      if (counted_by(device).kind == DeviceKind::cuda) return make_counting_kernels(device);
      return make_emulated_kernels(device, make_counting_kernels(device));
  }
  return nullptr;
}

}  // namespace tessera
