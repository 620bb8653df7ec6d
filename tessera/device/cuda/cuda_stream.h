// Streams and events, built on CUDA's streams and events.
#pragma once

#include <cuda_runtime_api.h>

#include "tessera/device/stream.h"

namespace tessera::cuda {

// Normally, the thread that calls record(), wait() or copy() passes this work to CUDA immediately. Some work must first
// wait for the host: for an event of a host stream, for an event that another stream's thread has not recorded in CUDA
// yet, or for host code (run()). Then the stream's own thread waits and runs the host code. It also passes all later
// work to CUDA, until its queue is empty. Threads and other streams can wait for an event of this stream even if the
// stream's own thread has not recorded the event in CUDA yet.
class CudaStream final : public Stream {
 public:
  // in_caller: the stream has no thread of its own. The caller waits and runs host code. The compute stream works this
  // way, because the kernels keep its cudaStream_t and launch on it directly.
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
  // Returns the cudaStream_t. First waits until all earlier work of the stream has been passed to CUDA.
  void* native() const override;

 private:
  Event issue(std::function<void()> call);

  const int ordinal_;
  cudaStream_t stream_ = nullptr;
  std::unique_ptr<Stream> issuer_;  // the stream's own thread, or null
};

}  // namespace tessera::cuda
