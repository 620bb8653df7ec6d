#include "tessera/plan/known_gpus.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "measured_h200.h"  // made by CMake from measured_h200.json

namespace tessera {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;

// A driver reports a little less memory than the name of a GPU says, and a process with CUDA needs about half a GiB.
constexpr int64_t usable(double reported_gib) {
  return static_cast<int64_t>((reported_gib - 0.6) * static_cast<double>(kGiB));
}

// Sources: NVIDIA's data sheets of the SXM variants, of the L40S, and of the Ada architecture (RTX 4090, sums in FP32).
// PCIe: measured rates of pinned copies are about 85 % of the nominal rate.
const std::vector<KnownGpu> kKnown = {
    {"v100-16", "NVIDIA V100 16 GB", "V100", usable(15.8), 80, 0, 125, 0, 0, 15.7, 900, 13, 150, 300},
    {"v100-32", "NVIDIA V100 32 GB", "V100", usable(31.7), 80, 0, 125, 0, 0, 15.7, 900, 13, 150, 300},
    {"a100-40", "NVIDIA A100 40 GB", "A100", usable(39.6), 108, 0, 312, 312, 156, 19.5, 1555, 26, 300, 400},
    {"a100-80", "NVIDIA A100 80 GB", "A100", usable(79.3), 108, 0, 312, 312, 156, 19.5, 2039, 26, 300, 400},
    {"h100-80", "NVIDIA H100 80 GB", "H100 80GB HBM3", usable(79.6), 132, 1979, 989, 989, 495, 67, 3350, 55, 450, 700},
    {"h200", "NVIDIA H200", "H200", usable(140.4), 132, 1979, 989, 989, 495, 67, 4800, 55, 450, 700},
    {"l40s", "NVIDIA L40S", "L40S", usable(45.0), 142, 0, 362, 362, 183, 91.6, 864, 26, 0, 350},
    {"rtx-4090", "NVIDIA GeForce RTX 4090", "RTX 4090", usable(24.0), 128, 0, 165, 165, 82.6, 82.6, 1008, 26, 0, 450},
};

const KnownGpu& measured_gpu() {
  return *known_gpu_by_word("h200");
}

double tflops_of(const KnownGpu& gpu, Arithmetic type) {
  switch (type) {
    case Arithmetic::f16:
      return gpu.f16_tflops;
    case Arithmetic::bf16:
      return gpu.bf16_tflops;
    case Arithmetic::fp8:
      return gpu.fp8_tflops;
    case Arithmetic::tf32:
      return gpu.tf32_tflops;
    case Arithmetic::f32:
      return gpu.f32_tflops;
  }
  return 0;
}

}  // namespace

const std::vector<KnownGpu>& known_gpus() {
  return kKnown;
}

const KnownGpu* known_gpu_by_word(std::string_view word) {
  const auto found = std::ranges::find(kKnown, word, &KnownGpu::word);
  return found != kKnown.end() ? &*found : nullptr;
}

namespace {

// Whether a driver uses this name for the GPU. Slower variants and other GPUs have names that contain the same words,
// for example "NVIDIA GH200 480GB".
bool names(std::string_view driver_name, const KnownGpu& gpu) {
  for (const char* other : {"Laptop", "PCI", "NVL", "GH200", "4090 D"}) {
    if (driver_name.find(other) != std::string_view::npos) return false;
  }
  return driver_name.find(gpu.driver_name) != std::string_view::npos;
}

}  // namespace

const KnownGpu* known_gpu_by_name(std::string_view driver_name, int64_t memory_bytes) {
  const KnownGpu* nearest = nullptr;
  const auto distance = [&](const KnownGpu& gpu) { return std::abs(gpu.memory_bytes - memory_bytes); };
  for (const KnownGpu& gpu : kKnown) {
    if (!names(driver_name, gpu) && driver_name != gpu.name) continue;
    if (!nearest || distance(gpu) < distance(*nearest)) nearest = &gpu;
  }
  return nearest;
}

Machine machine_of(const KnownGpu& gpu) {
  static const Machine measured = machine_from(record_from_json(kMeasuredH200, "the measured GPU"), "the measured GPU");
  const KnownGpu& from = measured_gpu();
  Machine machine = measured;
  machine.name = gpu.name;
  machine.source = "data sheet";
  machine.num_multiprocessors = gpu.num_multiprocessors;
  using enum Arithmetic;
  // bf16 was measured most densely. A GPU without bf16 takes these rates for f16, and a GPU without TF32 has no rates
  // for it: its products then take those of the nearest type.
  if (gpu.bf16_tflops == 0) {
    std::erase_if(machine.products, [](const Machine::Product& p) { return p.type == f16; });
    for (Machine::Product& p : machine.products) p.type = p.type == bf16 ? f16 : p.type;
    for (Machine::Attention& a : machine.attention) a.type = a.type == bf16 ? f16 : a.type;
  }
  const auto ratio = [&](Arithmetic type) { return tflops_of(gpu, type) / tflops_of(from, type); };
  std::erase_if(machine.products, [&](const Machine::Product& p) { return ratio(p.type) == 0; });
  std::erase_if(machine.attention, [&](const Machine::Attention& a) { return ratio(a.type) == 0; });
  for (Machine::Product& p : machine.products) p.flops_per_s *= ratio(p.type);
  for (Machine::Attention& a : machine.attention) {
    a.forward_flops_per_s *= ratio(a.type);
    a.backward_flops_per_s *= ratio(a.type);
  }
  // The smallest kernel takes the time of its launch, on every GPU.
  const double start_s = machine.memory.front().seconds, slower = from.memory_gb_per_s / gpu.memory_gb_per_s;
  for (Machine::Memory& m : machine.memory) m.seconds = start_s + (m.seconds - start_s) * slower;
  const double pcie = gpu.pcie_gb_per_s / from.pcie_gb_per_s;
  machine.to_device_bytes_per_s *= pcie;
  machine.to_host_bytes_per_s *= pcie;
  constexpr double kUsed = 0.8;  // of a link's rate, by collectives
  const double link = gpu.nvlink_gb_per_s > 0 ? kUsed * gpu.nvlink_gb_per_s : gpu.pcie_gb_per_s / 2;
  machine.within_node = {15e-6, link * 1e9};
  machine.between_nodes = kTypicalNetworkOfARank;
  return machine;
}

Machine typical_cpu(int num_threads) {
  Machine machine;
  machine.name = "a CPU";
  machine.source = "typical values";
  const double threads = std::max(1, num_threads), bytes_per_s = 10e9 * std::sqrt(threads);
  constexpr int64_t kRows = 64, kChannels = 512;
  for (const ProductForm form : {ProductForm::forward, ProductForm::backward_input, ProductForm::backward_weight}) {
    machine.products.push_back({Arithmetic::f32, form, kRows, kChannels, kChannels, 3e10 * threads});
  }
  machine.attention.push_back({Arithmetic::f32, false, 64, 256, 32, 1e10 * threads, 1e10 * threads});
  machine.memory = {{1 << 12, 2e-6}, {1 << 30, (1 << 30) / bytes_per_s}};
  machine.host_bytes_per_s = bytes_per_s;
  machine.host_parameters_bytes_per_s = machine.host_moments_bytes_per_s = 0.8 * bytes_per_s;
  machine.to_device_bytes_per_s = machine.to_host_bytes_per_s = bytes_per_s / 2;
  machine.file_read_bytes_per_s = 2e9;
  machine.file_write_bytes_per_s = 1e9;
  machine.within_node = {10e-6, 4e9};
  machine.between_nodes = {50e-6, 1e9};
  return machine;
}

}  // namespace tessera
