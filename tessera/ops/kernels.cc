#include "tessera/ops/kernels.h"

#include <tessera_instruction_sets.h>

#include "tessera/base/instruction_sets.h"
#include "tessera/ops/back_ends.h"

// CpuKernels (cpu/cpu_kernels.h) of each instruction set.
#define TESSERA_DECLARE(set) extern "C" tessera::Kernels* tessera_cpu_kernels_##set(tessera::Device& device);
TESSERA_FOR_EACH_INSTRUCTION_SET(TESSERA_DECLARE)
#undef TESSERA_DECLARE

namespace tessera {

namespace {

std::unique_ptr<Kernels> make_cpu_kernels(Device& device) {
#define TESSERA_POINTER(set) &tessera_cpu_kernels_##set,
  static constexpr Kernels* (*kMakers[])(Device&) = {TESSERA_FOR_EACH_INSTRUCTION_SET(TESSERA_POINTER)};
#undef TESSERA_POINTER
  return std::unique_ptr<Kernels>(kMakers[chosen_instruction_set()](device));
}

}  // namespace

std::unique_ptr<Kernels> make_kernels(Device& device, bool allow_tf32) {
  switch (device.kind()) {
    case DeviceKind::cpu:
      return make_emulated_kernels(device, make_cpu_kernels(device));
    case DeviceKind::cuda:
      return make_cuda_kernels(device, allow_tf32);
    case DeviceKind::counting:
      if (counted_by(device).kind == DeviceKind::cuda) return make_counting_kernels(device, allow_tf32);
      return make_emulated_kernels(device, make_counting_kernels(device));
  }
  return nullptr;
}

}  // namespace tessera
