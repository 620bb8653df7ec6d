// A device owns memory, records it in its ledger, and has streams of work. On a CPU, the compute stream runs its work
// immediately in the calling thread, and the kernels use the thread pool. Each other stream of a CPU device
// (make_stream()) has its own thread. The counting device allocates nothing and runs nothing. An engine on the counting
// device therefore only counts the memory and the work that a run needs (engine/plan.h).
#pragma once

#include <cstdint>
#include <limits>
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
class Timeline;

// Where the memory of buffers comes from: a device, or what a group of ranks offers (Communicator::allocator()).
class Allocator {
 public:
  virtual ~Allocator() = default;

 private:
  friend class Buffer;
  friend class Device;
  virtual std::byte* take(int64_t bytes) = 0;  // nullptr if no memory is left
  virtual void give_back(std::byte* data, int64_t bytes) = 0;
};

// Owned memory of a device. Destruction returns it to the device and removes it from the ledger. Movable, not copyable.
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
  Buffer(Device* device, Allocator* source, std::byte* data, int64_t bytes, Category category)
      : device_(device), source_(source), data_(data), bytes_(bytes), category_(category) {}
  void swap(Buffer& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(source_, other.source_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(category_, other.category_);
  }

  Device* device_ = nullptr;
  Allocator* source_ = nullptr;
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
  Category category_ = Category::workspace;
};

class Device : private Allocator {
 public:
  virtual DeviceKind kind() const = 0;

  // Zeroed memory aligned to kAlignment. The ledger records exactly `bytes` bytes. Throws OutOfMemoryError with the
  // category, the requested bytes and the bytes that the device already holds. With `from`, the memory comes from this
  // allocator instead of the device's own. The allocator must outlive the buffer.
  Buffer allocate(int64_t bytes, Category category, Allocator* from = nullptr);

  // From now on, allocate() throws if the device would hold more bytes than this: as if it had no more memory.
  void limit_to(int64_t bytes) { limit_bytes_ = bytes; }

  // Whether the host can read and write this device's memory.
  virtual bool host_visible() const = 0;
  // The device's kernels run on this stream.
  virtual Stream& compute_stream() = 0;
  // A new stream, for copies and communication that overlap the kernels. It must not outlive the device.
  virtual std::unique_ptr<Stream> make_stream() = 0;

  // These two functions copy the bytes of the view to or from host memory, after all earlier work of the compute
  // stream. The copy is complete on return.
  virtual void copy_to_host(View from, void* to) = 0;
  virtual void copy_from_host(const void* from, View to) = 0;

  Ledger& ledger() { return ledger_; }
  const Ledger& ledger() const { return ledger_; }

  static constexpr int64_t kAlignment = 256;

 private:
  friend class Buffer;
  virtual void make_current() {}  // before each call of an allocator: an allocator of GPU memory uses the current GPU
  virtual void clear(std::byte* data, int64_t bytes) = 0;  // zeroes memory that comes from another allocator
  virtual std::string remedy() const;                      // for the error when no memory is left

  Ledger ledger_;
  int64_t limit_bytes_ = std::numeric_limits<int64_t>::max();
};

// The host's memory and cores. `pool` must outlive the device.
std::unique_ptr<Device> make_cpu_device(ThreadPool& pool);
// The device that a counting device stands for.
struct CountedDevice {
  DeviceKind kind = DeviceKind::cpu;
  int num_threads = 1;  // if `kind` is cpu: the number of threads of its pool
  // If set, the work on the device's streams takes simulated time (counting/timeline.h). Must outlive the device.
  Timeline* timeline = nullptr;
};
// A device that allocates nothing and counts the memory that `counted` would hold. The addresses of its buffers are
// distinct and must never be dereferenced. Its copies and streams move nothing, and do nothing without a timeline.
std::unique_ptr<Device> make_counting_device(CountedDevice counted = {});
// The device that the counting device `device` stands for.
const CountedDevice& counted_by(Device& device);
// The kind of a device. For a counting device: the kind that it stands for.
DeviceKind kind_of_work(Device& device);

// The thread pool of a device, which must be of kind cpu.
ThreadPool& thread_pool_of(Device& device);

}  // namespace tessera
