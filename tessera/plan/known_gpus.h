// GPUs whose speeds are known without a measurement: from data sheets, relative to a GPU that was measured.
#pragma once

#include <string_view>
#include <vector>

#include "tessera/device/counting/machine.h"

namespace tessera {

// The data sheet of a GPU. Rates are those of dense matrices and of one direction.
struct KnownGpu {
  const char* word;         // that names it: "a100-80"
  const char* name;         // "NVIDIA A100 80 GB"
  const char* driver_name;  // a part of the name that the driver gives
  int64_t memory_bytes;     // that a program may use
  int num_multiprocessors;
  // 0: the GPU has no such products. fp8: those with a scale for 128 values, which the program uses.
  double fp8_tflops, f16_tflops, bf16_tflops, tf32_tflops, f32_tflops;
  double memory_gb_per_s, pcie_gb_per_s, nvlink_gb_per_s;  // 0: the GPU has no NVLink
  double power_w;
};
const std::vector<KnownGpu>& known_gpus();
// Null if the word names no known GPU.
const KnownGpu* known_gpu_by_word(std::string_view word);
// The GPU with the name that the driver gives; of several, the one whose memory is the nearest. Null if it is not
// known.
const KnownGpu* known_gpu_by_name(std::string_view driver_name, int64_t memory_bytes);

// Its speeds: those of the measured GPU, multiplied by the ratios of the data sheets. The host and its disk are those
// of the measured machine.
Machine machine_of(const KnownGpu& gpu);

// Typical speeds, for a CPU that was not measured. Only for comparing configurations.
Machine typical_cpu(int num_threads);

// The network of a node, if nobody has measured it: 100 Gbit/s for each of its ranks. A collective of all ranks uses
// all of it.
inline constexpr Machine::Link kTypicalNetworkOfARank{20e-6, 11e9};

}  // namespace tessera
