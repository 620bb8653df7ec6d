// The host as a device. The device for pinned host memory derives from CpuDevice.
#pragma once

#include <cstring>

#include "tessera/device/device.h"

namespace tessera {

// Does its work immediately, in the calling thread.
class ImmediateStream final : public Stream {
 public:
  Event record() override { return {}; }
  void wait(const Event& event) override { event.synchronize(); }
  void run(std::function<void()> work) override { work(); }
  void copy(View from, View to) override;
};

class CpuDevice : public Device {
 public:
  explicit CpuDevice(ThreadPool& pool) : pool_(pool) {}
  DeviceKind kind() const override { return DeviceKind::cpu; }
  void copy_to_host(View from, void* to) override;
  void copy_from_host(const void* from, View to) override;
  bool host_visible() const override { return true; }
  Stream& compute_stream() override { return compute_; }
  std::unique_ptr<Stream> make_stream() override { return make_host_stream(); }
  ThreadPool& pool() { return pool_; }

 protected:
  std::byte* take(int64_t bytes) override;
  void give_back(std::byte* data, int64_t bytes) override;

 private:
  void clear(std::byte* data, int64_t bytes) override { std::memset(data, 0, static_cast<size_t>(bytes)); }

  ThreadPool& pool_;
  ImmediateStream compute_;
};

}  // namespace tessera
