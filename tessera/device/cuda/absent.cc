// Replaces the CUDA back end if the build machine has no CUDA toolkit.
#include "tessera/base/option_names.h"
#include "tessera/device/cuda/cuda_device.h"

namespace tessera {
namespace {

[[noreturn]] void absent(const std::string& where) {
  throw UsageError(where, "this tessera was built without CUDA",
                   "Build it on a machine with nvcc on the PATH, or use " + option("device") + " cpu");
}

}  // namespace

CudaInfo cuda_info() {
  CudaInfo info;
  info.problem = "built without CUDA";
  return info;
}

std::unique_ptr<Device> make_cuda_device(int) {
  absent(option_place("device") + " cuda");
}

int cuda_ordinal_of_rank(int local_rank) {
  return local_rank;
}

CudaMemory cuda_memory_of(Device&) {
  absent(option_place("device") + " cuda");
}

std::string cuda_pci_address_of(Device&) {
  absent(option_place("device") + " cuda");
}

std::string cuda_uuid_of(Device&) {
  absent(option_place("device") + " cuda");
}

std::unique_ptr<Device> make_pinned_host_device(ThreadPool&, int64_t) {
  absent("pinned memory");
}

std::string reason_of_unpinned(const Device&) {
  return "";
}

}  // namespace tessera
