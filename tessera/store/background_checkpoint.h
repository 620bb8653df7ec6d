// Checkpoints that are written during training, from a copy in host memory.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tessera/base/thread_pool.h"
#include "tessera/comm/communicator.h"
#include "tessera/device/device.h"
#include "tessera/store/checkpoint_writer.h"

namespace tessera {

class BackgroundCheckpoint {
 public:
  // The copy of the checkpoint's data is on `host`, a device of host memory. The first save allocates its memory, and
  // later saves use this memory again if it is large enough. The copy belongs to Category::staging. Its size is the sum
  // of the sizes of this rank's ranges, each rounded up to a multiple of Device::kAlignment bytes. The writing thread
  // has its own communicator, a duplicate of `world`. Therefore the constructor is collective. `host` must outlive this
  // object.
  BackgroundCheckpoint(Device& host, Communicator& world);
  // Waits for the save in progress and drops its error. A run that has not failed must call wait() first, which throws
  // this error.
  ~BackgroundCheckpoint() = default;
  BackgroundCheckpoint(const BackgroundCheckpoint&) = delete;
  BackgroundCheckpoint& operator=(const BackgroundCheckpoint&) = delete;

  // Waits for the previous save and throws its error. Then copies what `write_part` writes, starts a thread that runs
  // write_checkpoint() on the copy, and returns. The copying runs in parallel on `pool`; the new thread does not use
  // `pool`. Collective: all ranks have the same outcome. If `host` is a counting device, save() only allocates the
  // copy.
  void save(const std::filesystem::path& output_folder, int64_t step, const WritePart& write_part,
            ThreadPool* pool = nullptr);
  // Returns when the last save is on the disk on all ranks. If this save failed, throws its error; a second call of
  // wait() does not throw this error again. Every rank must call wait(), because each rank gets the outcome from its
  // own thread.
  void wait();
  // Whether the last save is still being written.
  bool is_writing() const {
    return write_.valid() && write_.wait_for(std::chrono::seconds(0)) != std::future_status::ready;
  }

 private:
  struct Array {
    ArrayRange range;
    DType dtype;
    int64_t offset;  // of the array in the buffer, in bytes
    int64_t written_elems = 0;
  };
  // What `write_part` wrote in a call of save(). It exists until the thread has written it to the disk.
  class Copy final : public CheckpointPart {
   public:
    Copy(Device& host, Buffer& buffer, ThreadPool* pool) : host_(host), buffer_(buffer), pool_(pool) {}
    void declare(const ArrayRange& range, DType dtype) override;
    void refer(const std::string& name, int64_t total_elems, DType dtype, const ReferencedFiles& files) override;
    void write(std::string_view name, const View& values) override;
    void add_text(std::string_view name, std::string_view text) override;
    void allocate();
    void give_to(CheckpointPart& part) const;

   private:
    Device& host_;
    Buffer& buffer_;
    ThreadPool* const pool_;
    std::vector<Array> arrays_;
    std::vector<ManifestArray> referenced_;
    ReferencedFiles files_;  // with the referenced arrays
    std::vector<std::pair<std::string, std::string>> texts_;
    int64_t bytes_ = 0;
  };

  Device& host_;
  const std::unique_ptr<Communicator> world_;
  Buffer buffer_;
  std::future<void> write_;
  std::jthread thread_;  // the last member: its destructor waits for the write before the other members are destroyed
};

}  // namespace tessera
