// Streams and events on CUDA's.
#pragma once

#include <cuda_runtime_api.h>

#include "tessera/device/stream.h"

namespace tessera::cuda {

// The thread that puts work here gives it to CUDA at once, unless it has to wait for the host first: for an event of a
// host's thread, or for code to run. Then a thread of the stream's own waits, runs and gives to CUDA what follows,
// until it has caught up; events that it has not come to yet can be waited for like others.
class CudaStream final : public Stream {
 public:
  // Without a thread of its own the caller does all of it, as suits the stream whose handle the kernels hold.
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
  // Once all that was put here before is given to CUDA.
  void* native() const override;

 private:
  Event issue(std::function<void()> call);

  const int ordinal_;
  cudaStream_t stream_ = nullptr;
  std::unique_ptr<Stream> issuer_;  // or none
};

}  // namespace tessera::cuda
