#include "tessera/device/device.h"

namespace tessera {
namespace {

class CountingDevice final : public Device {
 public:
  DeviceKind kind() const override { return DeviceKind::counting; }
  void copy_to_host(View, void*) override {}
  void copy_from_host(const void*, View) override {}

 private:
  std::byte* take(int64_t bytes) override {
    const uintptr_t address = next_;
    next_ += static_cast<uintptr_t>((bytes + kAlignment) / kAlignment * kAlignment);
    return reinterpret_cast<std::byte*>(address);
  }
  void give_back(std::byte*, int64_t) override {}

  uintptr_t next_ = 1u << 20;  // no address is null
};

}  // namespace

std::unique_ptr<Device> make_counting_device() {
  return std::make_unique<CountingDevice>();
}

}  // namespace tessera
