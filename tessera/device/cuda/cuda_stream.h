// Streams and events on CUDA's.
#pragma once

#include <cuda_runtime_api.h>

#include <exception>
#include <mutex>

#include "tessera/device/stream.h"

namespace tessera::cuda {

// The first exception of host work on a stream; shared with the stream's events, which may outlive it.
class Failure {
 public:
  void keep(std::exception_ptr failure) {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = std::move(failure);
  }
  std::exception_ptr get() {
    const std::lock_guard lock(mutex_);
    return failure_;
  }

 private:
  std::mutex mutex_;
  std::exception_ptr failure_;
};

class CudaStream final : public Stream {
 public:
  explicit CudaStream(int ordinal);
  ~CudaStream() override;
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  Event record() override;
  void wait(const Event& event) override;
  void run(std::function<void()> work) override;
  void copy(View from, View to) override;
  std::unique_ptr<StreamGraph> capture(const std::function<void()>& work) override;
  void* native() const override { return stream_; }

 private:
  int ordinal_;
  cudaStream_t stream_ = nullptr;
  bool host_work_ahead_ = false;  // perhaps, of this stream or one that it waits for
  std::shared_ptr<Failure> failure_ = std::make_shared<Failure>();
};

}  // namespace tessera::cuda
