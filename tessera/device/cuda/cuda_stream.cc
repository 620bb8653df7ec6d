#include "tessera/device/cuda/cuda_stream.h"

#include "tessera/device/cuda/cuda_check.h"

namespace tessera::cuda {
namespace {

// Asked, waited for and forgotten by any thread, of which CUDA would take the first GPU to be the current one.
class CudaEvent final : public Event::State {
 public:
  CudaEvent(int ordinal, cudaStream_t stream, bool after_host_work, std::shared_ptr<Failure> failure)
      : ordinal_(ordinal), after_host_work_(after_host_work), failure_(std::move(failure)) {
    check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "cudaEventCreateWithFlags");
    const cudaError_t error = cudaEventRecord(event_, stream);
    if (error == cudaSuccess) return;
    cudaEventDestroy(event_);
    fail("cudaEventRecord", error);
  }
  ~CudaEvent() override {
    cudaSetDevice(ordinal_);
    cudaEventDestroy(event_);
  }
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;

  bool reached() override {
    check(cudaSetDevice(ordinal_), "cudaSetDevice");
    const cudaError_t error = cudaEventQuery(event_);
    if (error == cudaErrorNotReady) return false;
    check(error, "cudaEventQuery");
    return !failure_->get();
  }
  void synchronize() override {
    check(cudaSetDevice(ordinal_), "cudaSetDevice");
    check(cudaEventSynchronize(event_), "cudaEventSynchronize");
    if (const auto failure = failure_->get()) std::rethrow_exception(failure);
  }
  cudaEvent_t native() const { return event_; }
  bool after_host_work() const { return after_host_work_; }

 private:
  cudaEvent_t event_ = nullptr;
  const int ordinal_;
  const bool after_host_work_;
  std::shared_ptr<Failure> failure_;
};

class CudaGraph final : public StreamGraph {
 public:
  CudaGraph(cudaGraph_t graph, cudaStream_t stream) : stream_(stream) {
    check(cudaGraphInstantiate(&executable_, graph, 0), "cudaGraphInstantiate");
  }
  ~CudaGraph() override { cudaGraphExecDestroy(executable_); }
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;

  void launch() override { check(cudaGraphLaunch(executable_, stream_), "cudaGraphLaunch"); }

 private:
  cudaGraphExec_t executable_ = nullptr;
  const cudaStream_t stream_;
};

// Host work on its way through CUDA's queue, which passes one pointer.
struct HostWork {
  std::function<void()> work;
  std::shared_ptr<Failure> failure;
};

void CUDART_CB run_host_work(void* data) {
  const std::unique_ptr<HostWork> host(static_cast<HostWork*>(data));
  if (host->failure->get()) return;  // what follows a failure is skipped
  try {
    host->work();
  } catch (...) {
    host->failure->keep(std::current_exception());
  }
}

bool is_pageable(const void* data) {
  cudaPointerAttributes attributes;
  check(cudaPointerGetAttributes(&attributes, data), "cudaPointerGetAttributes");
  return attributes.type == cudaMemoryTypeUnregistered;
}

}  // namespace

CudaStream::CudaStream(int ordinal) : ordinal_(ordinal) {
  check(cudaSetDevice(ordinal_), "cudaSetDevice");
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
}

CudaStream::~CudaStream() {
  cudaSetDevice(ordinal_);
  cudaStreamSynchronize(stream_);
  cudaStreamDestroy(stream_);
}

Event CudaStream::record() {
  check(cudaSetDevice(ordinal_), "cudaSetDevice");
  return Event(std::make_shared<CudaEvent>(ordinal_, stream_, host_work_ahead_, failure_));
}

void CudaStream::wait(const Event& event) {
  if (!event.state()) return;
  check(cudaSetDevice(ordinal_), "cudaSetDevice");
  if (const auto* of_cuda = dynamic_cast<CudaEvent*>(event.state())) {
    check(cudaStreamWaitEvent(stream_, of_cuda->native(), 0), "cudaStreamWaitEvent");
    host_work_ahead_ = host_work_ahead_ || of_cuda->after_host_work();
  } else {
    // The event of a host's thread. A host function that waited for it would hold up CUDA's callbacks, and with them
    // what the event may be waiting for itself.
    event.synchronize();
  }
}

void CudaStream::run(std::function<void()> work) {
  check(cudaSetDevice(ordinal_), "cudaSetDevice");
  auto host = std::make_unique<HostWork>(std::move(work), failure_);
  check(cudaLaunchHostFunc(stream_, run_host_work, host.get()), "cudaLaunchHostFunc");
  host.release();  // run_host_work owns it now
  host_work_ahead_ = true;
}

// Other threads go on meanwhile: what they ask of CUDA is not for this stream.
std::unique_ptr<StreamGraph> CudaStream::capture(const std::function<void()>& work) {
  check(cudaSetDevice(ordinal_), "cudaSetDevice");
  check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  std::exception_ptr failure;
  try {
    work();
  } catch (...) {
    failure = std::current_exception();
  }
  cudaGraph_t graph = nullptr;
  const cudaError_t ended = cudaStreamEndCapture(stream_, &graph);
  const std::unique_ptr<std::remove_pointer_t<cudaGraph_t>, decltype(&cudaGraphDestroy)> owner(graph, cudaGraphDestroy);
  if (failure) std::rethrow_exception(failure);
  check(ended, "cudaStreamEndCapture");
  return std::make_unique<CudaGraph>(graph, stream_);
}

void CudaStream::copy(View from, View to) {
  TESSERA_ASSERT(from.bytes() == to.bytes());
  if (from.bytes() == 0) return;
  check(cudaSetDevice(ordinal_), "cudaSetDevice");
  // From memory that is not pinned CUDA may read within the call, before host work ahead of it has written there.
  if (host_work_ahead_ && is_pageable(from.data)) {
    synchronize();
    host_work_ahead_ = false;
  }
  check(cudaMemcpyAsync(to.data, from.data, static_cast<size_t>(from.bytes()), cudaMemcpyDefault, stream_),
        "cudaMemcpyAsync");
}

}  // namespace tessera::cuda
