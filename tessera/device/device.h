// A device owns memory, books it, and has streams of work. The CPU computes at once in the calling thread's team and
// has threads for what runs beside it; the counting device holds nothing and runs nothing, so that the same engine on
// it is the plan of a run.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "tessera/base/thread_pool.h"
#include "tessera/base/view.h"
#include "tessera/device/ledger.h"
#include "tessera/device/stream.h"

namespace tessera {

enum class DeviceKind { cpu, cuda, counting };

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

  // The host can read and write this device's memory.
  virtual bool host_visible() const = 0;
  // The stream that the device's kernels run on.
  virtual Stream& compute_stream() = 0;
  // Another one, for copies and communication beside the kernels. It must not outlive the device.
  virtual std::unique_ptr<Stream> make_stream() = 0;

  // Between this device's memory and the host's, after all work of the compute stream: equal bytes, done on return.
  virtual void copy_to_host(View from, void* to) = 0;
  virtual void copy_from_host(const void* from, View to) = 0;

  Ledger& ledger() { return ledger_; }
  const Ledger& ledger() const { return ledger_; }

  static constexpr int64_t kAlignment = 256;

 private:
  friend class Buffer;
  virtual std::byte* take(int64_t bytes) = 0;  // nullptr when there is none
  virtual void give_back(std::byte* data, int64_t bytes) = 0;
  virtual const char* remedy() const;  // where there is none

  Ledger ledger_;
};

// The host's memory and cores. `pool` must outlive the device.
std::unique_ptr<Device> make_cpu_device(ThreadPool& pool);
// Counts alone what a device of another kind would hold: addresses are distinct and never to be dereferenced, copies
// and streams do nothing.
struct CountedDevice {
  DeviceKind kind = DeviceKind::cpu;  // that it stands for
  int num_threads = 1;                // of a CPU
};
std::unique_ptr<Device> make_counting_device(CountedDevice counted = {});
// What a counting device stands for.
const CountedDevice& counted_by(Device& device);
// The kind of a device, or of what it stands for.
DeviceKind kind_of_work(Device& device);

// The team of threads of a CPU device. The device must be one.
ThreadPool& thread_pool_of(Device& device);

}  // namespace tessera
