#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace tessera {

// Signs of a GPU that is slow or about to fail. A value is nullopt if NVML or the GPU does not report it.
struct GpuHealth {
  std::optional<int64_t> uncorrected_errors;  // ECC errors of the memory since the driver was loaded
  std::optional<std::string> slowed_by;       // problems that reduce the clocks now: "heat (driver), power brake";
                                              // "" if no problem reduces them
};

// Asks NVML about the GPU at a PCI address. Never throws.
GpuHealth gpu_health(const std::string& pci_address, const char* library = "libnvidia-ml.so.1");

}  // namespace tessera
