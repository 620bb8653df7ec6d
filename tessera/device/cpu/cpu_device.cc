// Allocates host memory directly from the operating system. The system provides each page at the first access to it.
// Large buffers get huge pages if the system allows them. Freeing a buffer returns its pages immediately. Resident
// memory therefore follows the bytes in the ledger.
#include "tessera/device/cpu/cpu_device.h"

#include <sys/mman.h>

#include <cstring>

namespace tessera {
namespace {

constexpr size_t kHugePage = 2u << 20;

// Large arrays get an extra untouched gap at the end. Linux places mappings next to each other. Without a gap, the
// addresses of several arrays of 128 MiB would differ only in their upper bits. The arrays that a loop uses together
// (AdamW uses five) would then compete for the same cache sets and memory banks.
constexpr size_t kLarge = 4 * kHugePage, kGap = 3 * 4096;

// The address of an empty vector may be null. memcpy must not get null, even for zero bytes.
void copy_bytes(void* to, const void* from, int64_t bytes) {
  if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
}

size_t mapped(int64_t bytes) {
  const size_t length = bytes > 0 ? static_cast<size_t>(bytes) : 1;
  return length >= kLarge ? length + kGap : length;
}

}  // namespace

void ImmediateStream::copy(View from, View to) {
  TESSERA_ASSERT(from.bytes() == to.bytes());
  copy_bytes(to.data, from.data, from.bytes());
}

void CpuDevice::copy_to_host(View from, void* to) {
  copy_bytes(to, from.data, from.bytes());
}

void CpuDevice::copy_from_host(const void* from, View to) {
  copy_bytes(to.data, from, to.bytes());
}

std::byte* CpuDevice::take(int64_t bytes) {
  const size_t length = mapped(bytes);
  void* data = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) return nullptr;
  if (length >= kLarge) madvise(data, length, MADV_HUGEPAGE);
  return static_cast<std::byte*>(data);
}

void CpuDevice::give_back(std::byte* data, int64_t bytes) {
  munmap(data, mapped(bytes));
}

std::unique_ptr<Device> make_cpu_device(ThreadPool& pool) {
  return std::make_unique<CpuDevice>(pool);
}

ThreadPool& thread_pool_of(Device& device) {
  TESSERA_ASSERT(device.kind() == DeviceKind::cpu);
  return static_cast<CpuDevice&>(device).pool();
}

}  // namespace tessera
