// Streams and events, built on CUDA's streams and events.
#pragma once

#include <cuda_runtime_api.h>

#include "tessera/device/stream.h"

namespace tessera::cuda {

// The caller, which puts work on the stream, normally passes this work to CUDA immediately. If the work must first wait
// for the host (an event of a host stream or of another stream's own thread, or host code), the stream's own thread
// takes over. It waits, runs the host code and passes later work to CUDA, until no work is left in its queue. Threads
// and other streams can wait for an event of this stream even if the stream's own thread has not recorded the event in
// CUDA yet.
class CudaStream final : public Stream {
 public:
  // in_caller: the stream has no thread. The caller waits and runs host code itself. The compute stream works this way,
  // because the kernels keep its cudaStream_t and launch on it directly.
  enum class Waits { in_caller, in_own_thread };

  CudaStream(int ordinal, Waits waits);
  ~CudaStream() override;
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  Event record() override;
  void wait(const Event& event) override;
  void run(std::function<void()> work) override;
  void copy(View from, View to) override;
  std::unique_ptr<StreamGraph> capture(const std::function<void()>& work) override;
  // Waits until all earlier work of the stream has been passed to CUDA.
  void* native() const override;

 private:
  Event issue(std::function<void()> call);

  const int ordinal_;
  cudaStream_t stream_ = nullptr;
  std::unique_ptr<Stream> issuer_;  // the stream's own thread, or null
};

}  // namespace tessera::cuda
