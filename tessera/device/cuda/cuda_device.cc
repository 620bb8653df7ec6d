#include "tessera/device/cuda/cuda_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "tessera/base/math.h"
#include "tessera/base/option_names.h"
#include "tessera/device/cpu/cpu_device.h"
#include "tessera/device/cuda/cuda_check.h"
#include "tessera/device/cuda/cuda_stream.h"

namespace tessera {

namespace {

const char* remedy_for(cudaError_t error) {
  switch (error) {
    case cudaErrorDevicesUnavailable:
      return "Another process may use the GPU exclusively: `nvidia-smi` shows the processes and the compute mode";
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
      return "The GPU is faulty: use another one, and check `nvidia-smi -q` and the kernel log";
    case cudaErrorNoKernelImageForDevice:
      return "Build with -DTESSERA_CUDA_ARCHITECTURES for this GPU; `tessera doctor` shows the current ones";
    default:
      return "If the error occurs again, run the same command under compute-sanitizer and report its output";
  }
}

}  // namespace

void cuda::fail(const char* call, cudaError_t error) {
  cudaGetLastError();  // so that the check after the next kernel launch does not report this error again
  if (error == cudaErrorMemoryAllocation) {
    throw OutOfMemoryError("GPU memory", fmt::format("{} failed: no memory is left", call), kNoMemoryRemedy);
  }
  throw RunError("CUDA", fmt::format("{} failed: {} ({})", call, cudaGetErrorString(error), cudaGetErrorName(error)),
                 remedy_for(error));
}

namespace {

using cuda::check;

class CudaDevice final : public Device {
 public:
  explicit CudaDevice(int ordinal) : ordinal_(ordinal), compute_(ordinal, cuda::CudaStream::Waits::in_caller) {
    ledger().add(Category::context, kCudaContextBytes);
  }

  DeviceKind kind() const override { return DeviceKind::cuda; }
  bool host_visible() const override { return false; }
  Stream& compute_stream() override { return compute_; }
  std::unique_ptr<Stream> make_stream() override {
    return std::make_unique<cuda::CudaStream>(ordinal_, cuda::CudaStream::Waits::in_own_thread);
  }

  void copy_to_host(View from, void* to) override { copy_and_wait(from.data, to, from.bytes()); }
  void copy_from_host(const void* from, View to) override { copy_and_wait(from, to.data, to.bytes()); }

  CudaMemory memory() const {
    check(cudaSetDevice(ordinal_), "cudaSetDevice");
    size_t free = 0, total = 0;
    check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    // The ledger includes the context's memory even before it is allocated, so the sum may be greater than `total`.
    const int64_t usable = std::min(static_cast<int64_t>(free) + ledger().current_total(), static_cast<int64_t>(total));
    return {static_cast<int64_t>(total), usable};
  }
  std::string pci_address() const {
    char text[32] = {};
    if (cudaDeviceGetPCIBusId(text, sizeof text, ordinal_) != cudaSuccess) cudaGetLastError();
    return text;
  }
  std::string uuid() const {
    cudaDeviceProp properties;
    check(cudaGetDeviceProperties(&properties, ordinal_), "cudaGetDeviceProperties");
    std::string text;
    for (const char byte : properties.uuid.bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
    return text;
  }

 private:
  void copy_and_wait(const void* from, void* to, int64_t bytes) {
    if (bytes > 0) {
      check(cudaSetDevice(ordinal_), "cudaSetDevice");
      check(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault, stream()), "cudaMemcpyAsync");
    }
    compute_.synchronize();
  }

  void make_current() override {
    if (cudaSetDevice(ordinal_) != cudaSuccess) cudaGetLastError();  // a later call reports the error
  }
  std::byte* take(int64_t bytes) override {
    void* data = nullptr;
    const size_t size = static_cast<size_t>(bytes > 0 ? bytes : 1);
    const cudaError_t error = cudaMalloc(&data, size);
    if (error == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      return nullptr;
    }
    check(error, "cudaMalloc");
    clear(static_cast<std::byte*>(data), bytes);
    return static_cast<std::byte*>(data);
  }
  void clear(std::byte* data, int64_t bytes) override {
    check(cudaMemsetAsync(data, 0, static_cast<size_t>(bytes), stream()), "cudaMemsetAsync");
    check(cudaStreamSynchronize(stream()), "cudaStreamSynchronize");  // other streams may now use the memory
  }
  void give_back(std::byte* data, int64_t) override {
    cudaFree(data);  // waits for work that uses the memory; a later call reports errors of this work
  }

  cudaStream_t stream() { return static_cast<cudaStream_t>(compute_.native()); }

  const int ordinal_;
  cuda::CudaStream compute_;
};

// Page-locked memory of the host. All threads of the pool touch the pages of a block; then the block is locked.
// (cudaHostAlloc does both in the calling thread.) A block has the requested size, rounded up to full pages; PyTorch's
// pool rounds up to powers of two. A block that is given back is kept for the next request of its size. Before a new
// block is allocated, kept blocks are freed, the largest first, until the used, new and kept blocks together have at
// most as many bytes as the ledger's peak, or until no block is kept.
class PinnedHostDevice final : public CpuDevice {
 public:
  PinnedHostDevice(ThreadPool& pool, int64_t most_bytes) : CpuDevice(pool), most_bytes_(most_bytes) {}
  ~PinnedHostDevice() override { shrink(0); }
  const std::string& reason_of_unpinned() const { return reason_of_unpinned_; }

 private:
  std::byte* take(int64_t bytes) override {
    if (const auto kept = kept_.find(bytes); kept != kept_.end()) {
      std::byte* const data = kept->second;
      forget(kept);
      each_part(bytes,
                [&](int64_t begin, int64_t end) { std::memset(data + begin, 0, static_cast<size_t>(end - begin)); });
      return data;
    }
    shrink(std::max<int64_t>(0, ledger().peak_total() - ledger().current_total() - bytes));
    std::byte* data = CpuDevice::take(bytes);
    if (!data && !kept_.empty()) {
      shrink(0);
      data = CpuDevice::take(bytes);
    }
    if (data) pin(data, bytes);
    return data;
  }
  void give_back(std::byte* data, int64_t bytes) override {
    kept_.emplace(bytes, data);
    kept_bytes_ += bytes;
  }
  std::string remedy() const override {
    return "Offload to files instead of host memory, as in " + option("offload") +
           " optimizer:file, or use more machines";
  }

  // Locks a new block. Leaves the block unlocked if the system refuses, or if all locked blocks together would then
  // have more than most_bytes_ bytes. In both cases, sets reason_of_unpinned_.
  void pin(std::byte* data, int64_t bytes) {
    if (pinned_bytes_ + bytes > most_bytes_) shrink(0);
    if (pinned_bytes_ + bytes > most_bytes_) {
      reason_of_unpinned_ = fmt::format("a rank may pin at most {} MiB of this machine's memory", most_bytes_ >> 20);
      return;
    }
    each_part(bytes, [&](int64_t begin, int64_t end) {
      for (int64_t at = begin; at < end; at += kPageBytes) data[at] = {};
    });
    cudaError_t error = lock(data, bytes);
    if (error != cudaSuccess && !kept_.empty()) {
      shrink(0);
      error = lock(data, bytes);
    }
    if (error == cudaSuccess) return;
    const bool is_of_host = error == cudaErrorMemoryAllocation || error == cudaErrorOperatingSystem ||
                            error == cudaErrorNotPermitted || error == cudaErrorNotSupported;
    if (!is_of_host) {
      CpuDevice::give_back(data, bytes);
      cuda::fail("cudaHostRegister", error);
    }
    reason_of_unpinned_ =
        fmt::format("the system has locked {} MiB for this rank, and refused {} MiB more ({}); see `ulimit -l`",
                    pinned_bytes_ >> 20, bytes >> 20, cudaGetErrorString(error));
  }
  cudaError_t lock(std::byte* data, int64_t bytes) {
    const cudaError_t error =
        cudaHostRegister(data, static_cast<size_t>(std::max<int64_t>(bytes, 1)), cudaHostRegisterPortable);
    if (error == cudaSuccess) {
      pinned_.insert(data);
      pinned_bytes_ += bytes;
    } else {
      cudaGetLastError();  // clears the error, for the same reason as in cuda::fail()
    }
    return error;
  }
  // Returns whether the pages are unlocked now. Only then may their addresses be used for something else.
  bool unlock(std::byte* data, int64_t bytes) {
    if (pinned_.erase(data) == 0) return true;
    pinned_bytes_ -= bytes;
    return cudaHostUnregister(data) == cudaSuccess;
  }
  template <typename Body>
  void each_part(int64_t bytes, const Body& body) {
    pool().for_ranges(ceil_divide(bytes, kPartBytes), 1, [&](int64_t first, int64_t last) {
      body(first * kPartBytes, std::min(last * kPartBytes, bytes));
    });
  }
  void forget(std::multimap<int64_t, std::byte*>::iterator kept) {
    kept_bytes_ -= kept->first;
    kept_.erase(kept);
  }
  // Frees kept blocks, the largest first, until the remaining kept blocks have at most `most_bytes` bytes. 0 frees all
  // kept blocks.
  void shrink(int64_t most_bytes) {
    while (!kept_.empty() && (kept_bytes_ > most_bytes || most_bytes == 0)) {
      const auto last = std::prev(kept_.end());
      // After a CUDA error, unlock() may fail, and the pages stay locked. Their addresses must then stay reserved until
      // the process ends.
      if (unlock(last->second, last->first)) CpuDevice::give_back(last->second, last->first);
      forget(last);
    }
  }

  static constexpr int64_t kPageBytes = 4096, kPartBytes = int64_t{2} << 20;
  std::multimap<int64_t, std::byte*> kept_;  // by size in bytes
  int64_t kept_bytes_ = 0;
  std::set<std::byte*> pinned_;  // the locked blocks, in use or kept
  int64_t pinned_bytes_ = 0;
  const int64_t most_bytes_;
  std::string reason_of_unpinned_;
};

// CUDA writes versions as 1000 × major + 10 × minor.
std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

}  // namespace

CudaInfo cuda_info() {
  CudaInfo info;
  info.built = true;
  info.toolkit = version_text(CUDART_VERSION);
  info.architectures = TESSERA_CUDA_ARCHITECTURES;
  int driver = 0, count = 0;
  info.has_driver = cudaDriverGetVersion(&driver) == cudaSuccess && driver > 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) {
    cudaGetLastError();
    // CUDA returns cudaErrorInsufficientDriver for an old driver, and also if no driver is loaded.
    info.problem = error != cudaErrorInsufficientDriver ? cudaGetErrorString(error)
                   : !info.has_driver                   ? "no NVIDIA driver is loaded"
                                      : fmt::format("the driver supports CUDA {}, but this program was built with {}",
                                                    version_text(driver), info.toolkit);
    return info;
  }
  if (count == 0) info.problem = "no CUDA-capable device is visible";
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp properties;
    if (cudaGetDeviceProperties(&properties, i) != cudaSuccess) continue;
    info.devices.push_back({properties.name, static_cast<int64_t>(properties.totalGlobalMem), properties.major,
                            properties.minor, properties.multiProcessorCount});
  }
  return info;
}

std::unique_ptr<Device> make_cuda_device(int ordinal) {
  const CudaInfo info = cuda_info();
  const auto count = static_cast<int>(info.devices.size());
  if (count == 0) {
    throw UsageError(
        option_place("device") + " cuda", fmt::format("no GPU is available: {}", info.problem),
        "See `tessera doctor`, check nvidia-smi and CUDA_VISIBLE_DEVICES, or use " + option("device") + " cpu");
  }
  if (ordinal < 0 || ordinal >= count) {
    throw UsageError(option_place("device") + " cuda",
                     fmt::format("GPU number {} (counted from 0) is needed, but {} usable", ordinal,
                                 count == 1 ? "only one GPU is" : fmt::format("only {} GPUs are", count)),
                     "See `tessera doctor`, and check nvidia-smi and CUDA_VISIBLE_DEVICES");
  }
  return std::make_unique<CudaDevice>(ordinal);
}

int cuda_ordinal_of_rank(int local_rank) {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) cudaGetLastError();  // make_cuda_device reports the error
  return count > 0 ? local_rank % count : local_rank;
}

CudaMemory cuda_memory_of(Device& device) {
  TESSERA_ASSERT(device.kind() == DeviceKind::cuda);
  return static_cast<CudaDevice&>(device).memory();
}

std::string cuda_pci_address_of(Device& device) {
  TESSERA_ASSERT(device.kind() == DeviceKind::cuda);
  return static_cast<CudaDevice&>(device).pci_address();
}

std::string cuda_uuid_of(Device& device) {
  TESSERA_ASSERT(device.kind() == DeviceKind::cuda);
  return static_cast<CudaDevice&>(device).uuid();
}

std::unique_ptr<Device> make_pinned_host_device(ThreadPool& pool, int64_t most_bytes) {
  return std::make_unique<PinnedHostDevice>(pool, most_bytes);
}

std::string reason_of_unpinned(const Device& host) {
  const auto* pinned = dynamic_cast<const PinnedHostDevice*>(&host);
  return pinned ? pinned->reason_of_unpinned() : "";
}

}  // namespace tessera
