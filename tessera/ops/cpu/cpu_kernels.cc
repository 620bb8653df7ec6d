#include "tessera/ops/cpu/cpu_kernels.h"

#include "tessera/base/instruction_sets.h"

extern "C" tessera::Kernels* TESSERA_OF_INSTRUCTION_SET(tessera_cpu_kernels)(tessera::Device& device);
extern "C" tessera::Kernels* TESSERA_OF_INSTRUCTION_SET(tessera_cpu_kernels)(tessera::Device& device) {
  return new tessera::cpu::CpuKernels(device);
}
