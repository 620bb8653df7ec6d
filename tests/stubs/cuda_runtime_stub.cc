// Replaces the functions of CUDA's runtime that a CudaStream calls, so tests need no GPU. A stream is a thread. It
// makes each copy after a random delay. The build renames the functions, for example to stub_cudaSetDevice
// (tests/CMakeLists.txt). A program can therefore link both this file and CUDA's runtime.
#include <cuda_runtime_api.h>

#include <chrono>
#include <cstring>
#include <thread>

#include "tessera/base/random.h"
#include "tessera/device/stream.h"

struct CUstream_st {
  std::unique_ptr<tessera::Stream> thread = tessera::make_host_stream();
  tessera::RandomStream random{reinterpret_cast<uintptr_t>(this), 0};  // only `thread` uses it

  void put(std::function<void()> work) {
    thread->run([this, work = std::move(work)] {
      std::this_thread::sleep_for(std::chrono::microseconds(random.next_below(60)));
      work();
    });
  }
};
struct CUevent_st {
  tessera::Event recorded;
};

extern "C" {

cudaError_t cudaSetDevice(int) {
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = new CUstream_st;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  stream->thread->synchronize();
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  stream->thread->wait(event->recorded);
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new CUevent_st;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  event->recorded = stream->thread->record();
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  return event->recorded.reached() ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  event->recorded.synchronize();
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  stream->put([=] { std::memcpy(to, from, bytes); });
  return cudaSuccess;
}
// Graphs are not supported.
cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode) {
  return cudaErrorNotSupported;
}
cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t*) {
  return cudaErrorNotSupported;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t*, cudaGraph_t, unsigned long long) {
  return cudaErrorNotSupported;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t, cudaStream_t) {
  return cudaErrorNotSupported;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t) {
  return cudaErrorNotSupported;
}
cudaError_t cudaGraphDestroy(cudaGraph_t) {
  return cudaErrorNotSupported;
}

}  // extern "C"
