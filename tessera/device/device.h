// A device owns memory and books it. The CPU runs work at once in the calling thread's team; the
// counting device holds nothing and runs nothing, so that the same engine on it is the plan of a run.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "tessera/base/thread_pool.h"
#include "tessera/base/view.h"
#include "tessera/device/ledger.h"

namespace tessera {

enum class DeviceKind { cpu, counting };

class Device;

// Owned memory of a device, returned to it and struck from its ledger on destruction. Movable, not copyable.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    Buffer(std::move(other)).swap(*this);
    return *this;
  }
  ~Buffer();

  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  // The first elements of the buffer, as an array.
  View view(Shape shape, DType dtype) const;

 private:
  friend class Device;
  Buffer(Device* device, std::byte* data, int64_t bytes, Category category)
      : device_(device), data_(data), bytes_(bytes), category_(category) {}
  void swap(Buffer& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(category_, other.category_);
  }

  Device* device_ = nullptr;
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
  Category category_ = Category::workspace;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual DeviceKind kind() const = 0;

  // Zeroed memory aligned to kAlignment; enters the ledger with exactly `bytes` bytes.
  // Throws OutOfMemoryError with the category, the bytes asked for and the bytes held.
  Buffer allocate(int64_t bytes, Category category);

  // Between this device's memory and the host's: `from` and `to` have equal bytes. Return when done.
  virtual void copy_to_host(View from, void* to) = 0;
  virtual void copy_from_host(const void* from, View to) = 0;

  Ledger& ledger() { return ledger_; }
  const Ledger& ledger() const { return ledger_; }

  static constexpr int64_t kAlignment = 256;

 private:
  friend class Buffer;
  virtual std::byte* take(int64_t bytes) = 0;  // nullptr when there is none
  virtual void give_back(std::byte* data, int64_t bytes) = 0;

  Ledger ledger_;
};

// The host's memory and cores. `pool` must outlive the device.
std::unique_ptr<Device> make_cpu_device(ThreadPool& pool);
// Counts alone: addresses are distinct and never to be dereferenced; copies do nothing.
std::unique_ptr<Device> make_counting_device();

// The team of threads of a CPU device. The device must be one.
ThreadPool& thread_pool_of(Device& device);

}  // namespace tessera
