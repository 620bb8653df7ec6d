#include "tessera/device/cuda/cuda_device.h"

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
  explicit CountingDevice(CountedDevice counted) : counted_(counted) {
    if (counted.kind == DeviceKind::cuda) ledger().add(Category::context, kCudaContextBytes);
  }
  DeviceKind kind() const override { return DeviceKind::counting; }
  void copy_to_host(View, void*) override {}
  void copy_from_host(const void*, View) override {}
  bool host_visible() const override { return counted_.kind == DeviceKind::cpu; }
  Stream& compute_stream() override { return compute_; }
  std::unique_ptr<Stream> make_stream() override { return std::make_unique<CountingStream>(); }
  const CountedDevice& counted() const { return counted_; }

 private:
  std::byte* take(int64_t bytes) override {
    const uintptr_t address = next_;
    next_ += static_cast<uintptr_t>((bytes + kAlignment) / kAlignment * kAlignment);
    return reinterpret_cast<std::byte*>(address);
  }
  void give_back(std::byte*, int64_t) override {}

  const CountedDevice counted_;
  CountingStream compute_;
  uintptr_t next_ = 1u << 20;  // not 0, so no address is null
};

}  // namespace

std::unique_ptr<Device> make_counting_device(CountedDevice counted) {
  return std::make_unique<CountingDevice>(counted);
}

const CountedDevice& counted_by(Device& device) {
  TESSERA_ASSERT(device.kind() == DeviceKind::counting);
  return static_cast<CountingDevice&>(device).counted();
}

DeviceKind kind_of_work(Device& device) {
  return device.kind() == DeviceKind::counting ? counted_by(device).kind : device.kind();
}

}  // namespace tessera
