// Host memory straight from the kernel: pages appear when first touched, in huge pages where the system grants them,
// and go back at once when freed, so that resident memory follows the ledger.
#include "tessera/device/cpu/cpu_device.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

namespace tessera {
namespace {

constexpr size_t kHugePage = 2u << 20;

// Large arrays begin at different places of their huge pages. Kernels walk through several side by side (AdamW through
// five), which would otherwise want the same sets of caches and banks of memory all the time.
constexpr size_t kShiftPages = 3, kShifts = 16;

// An empty vector's address may be null, which memcpy must not get even for no bytes.
void copy_bytes(void* to, const void* from, int64_t bytes) {
  if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
}

size_t mapped(int64_t bytes) {
  return bytes > 0 ? static_cast<size_t>(bytes) : 1;
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
  const bool is_large = length >= 4 * kHugePage;
  static const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t shift = is_large ? num_large_++ % kShifts * kShiftPages * page : 0;
  void* mapping = mmap(nullptr, length + shift, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) return nullptr;
  if (shift > 0) munmap(mapping, shift);
  std::byte* const data = static_cast<std::byte*>(mapping) + shift;
  if (is_large) madvise(data, length, MADV_HUGEPAGE);
  return data;
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
