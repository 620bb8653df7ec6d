#include "tessera/device/device.h"

namespace tessera {
namespace {

class CountingStream final : public Stream {
 public:
  Event record() override { return {}; }
  void wait(const Event&) override {}
  void run(std::function<void()>) override {}
  void copy(View, View) override {}
};

class CountingDevice final : public Device {
 public:
  explicit CountingDevice(int num_threads) : num_threads_(num_threads) {}
  DeviceKind kind() const override { return DeviceKind::counting; }
  void copy_to_host(View, void*) override {}
  void copy_from_host(const void*, View) override {}
  bool host_visible() const override { return true; }
  Stream& compute_stream() override { return compute_; }
  std::unique_ptr<Stream> make_stream() override { return std::make_unique<CountingStream>(); }
  int num_threads() const { return num_threads_; }

 private:
  std::byte* take(int64_t bytes) override {
    const uintptr_t address = next_;
    next_ += static_cast<uintptr_t>((bytes + kAlignment) / kAlignment * kAlignment);
    return reinterpret_cast<std::byte*>(address);
  }
  void give_back(std::byte*, int64_t) override {}

  const int num_threads_;
  CountingStream compute_;
  uintptr_t next_ = 1u << 20;  // no address is null
};

}  // namespace

std::unique_ptr<Device> make_counting_device(int num_threads) {
  return std::make_unique<CountingDevice>(num_threads);
}

int counted_threads_of(Device& device) {
  TESSERA_ASSERT(device.kind() == DeviceKind::counting);
  return static_cast<CountingDevice&>(device).num_threads();
}

}  // namespace tessera
