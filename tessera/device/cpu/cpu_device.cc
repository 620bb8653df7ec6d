// Host memory straight from the kernel: pages appear when first touched, in huge pages where the system grants them,
// and go back at once when freed, so that resident memory follows the ledger.
#include <sys/mman.h>

#include <cstring>

#include "tessera/device/device.h"

namespace tessera {
namespace {

// Does its work at once, in the thread that asks.
class ImmediateStream final : public Stream {
 public:
  Event record() override { return {}; }
  void wait(const Event& event) override { event.synchronize(); }
  void run(std::function<void()> work) override { work(); }
  void copy(View from, View to) override {
    TESSERA_ASSERT(from.bytes() == to.bytes());
    if (from.bytes() > 0) std::memcpy(to.data, from.data, static_cast<size_t>(from.bytes()));
  }
};

class CpuDevice final : public Device {
 public:
  explicit CpuDevice(ThreadPool& pool) : pool_(pool) {}
  DeviceKind kind() const override { return DeviceKind::cpu; }
  void copy_to_host(View from, void* to) override { copy(to, from.data, from.bytes()); }
  void copy_from_host(const void* from, View to) override { copy(to.data, from, to.bytes()); }
  bool host_visible() const override { return true; }
  Stream& compute_stream() override { return compute_; }
  std::unique_ptr<Stream> make_stream() override { return make_host_stream(); }
  ThreadPool& pool() { return pool_; }

 private:
  // An empty vector's address may be null, which memcpy must not get even for no bytes.
  static void copy(void* to, const void* from, int64_t bytes) {
    if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
  }

  static constexpr size_t kHugePage = 2u << 20;

  std::byte* take(int64_t bytes) override {
    const size_t length = mapped(bytes);
    void* data = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) return nullptr;
    if (length >= 4 * kHugePage) madvise(data, length, MADV_HUGEPAGE);
    return static_cast<std::byte*>(data);
  }
  void give_back(std::byte* data, int64_t bytes) override { munmap(data, mapped(bytes)); }
  static size_t mapped(int64_t bytes) { return bytes > 0 ? static_cast<size_t>(bytes) : 1; }

  ThreadPool& pool_;
  ImmediateStream compute_;
};

}  // namespace

std::unique_ptr<Device> make_cpu_device(ThreadPool& pool) {
  return std::make_unique<CpuDevice>(pool);
}

ThreadPool& thread_pool_of(Device& device) {
  TESSERA_ASSERT(device.kind() == DeviceKind::cpu);
  return static_cast<CpuDevice&>(device).pool();
}

}  // namespace tessera
