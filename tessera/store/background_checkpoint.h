// Checkpoints that are written beside the training, from a copy in the host's memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "tessera/base/thread_pool.h"
#include "tessera/comm/communicator.h"
#include "tessera/device/device.h"
#include "tessera/store/checkpoint_writer.h"

namespace tessera {

class BackgroundCheckpoint {
 public:
  // The copy lies on `host`, a device of the host's memory; it is allocated at the first save (Category::staging, as
  // many bytes as the rank's ranges have, each rounded up to Device::kAlignment) and kept. The thread that writes has a
  // group of its own, split off `world`: collective. `host` must outlive this.
  BackgroundCheckpoint(Device& host, Communicator& world);
  // Waits for the save that is under way. Its error is lost: call wait() before, unless the run is failing already.
  ~BackgroundCheckpoint() = default;
  BackgroundCheckpoint(const BackgroundCheckpoint&) = delete;
  BackgroundCheckpoint& operator=(const BackgroundCheckpoint&) = delete;

  // Waits for the save before, whose error it throws. Then takes what `write_part` gives, and returns while a thread
  // does the work of write_checkpoint() with it. `pool` copies in parallel; the thread does without. Collective, with
  // one outcome on all ranks. On a counting device it allocates the copy alone.
  void save(const std::filesystem::path& output_folder, int64_t step, const WritePart& write_part,
            ThreadPool* pool = nullptr);
  // Returns once the last save is on the disk on all ranks; throws its error, once. Every rank must come here, for each
  // learns the outcome from its own thread.
  void wait();

 private:
  struct Array {
    ArrayRange range;
    DType dtype;
    int64_t offset;  // in bytes, of the buffer
    int64_t written_elems = 0;
  };
  // What a rank has given, until the thread has written it.
  class Copy final : public CheckpointPart {
   public:
    Copy(Device& host, Buffer& buffer, ThreadPool* pool) : host_(host), buffer_(buffer), pool_(pool) {}
    void declare(const ArrayRange& range, DType dtype) override;
    void write(std::string_view name, const View& values) override;
    void add_text(std::string_view name, std::string_view text) override;
    void allocate();
    void give_to(CheckpointPart& part) const;

   private:
    Device& host_;
    Buffer& buffer_;
    ThreadPool* const pool_;
    std::vector<Array> arrays_;
    std::vector<std::pair<std::string, std::string>> texts_;
    int64_t bytes_ = 0;
  };

  Device& host_;
  const std::unique_ptr<Communicator> world_;
  Buffer buffer_;
  std::future<void> write_;  // the last, so that it ends before what it works with
};

}  // namespace tessera
