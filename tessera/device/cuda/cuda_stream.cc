#include "tessera/device/cuda/cuda_stream.h"

#include "tessera/device/cuda/cuda_check.h"

namespace tessera::cuda {
namespace {

// Any thread may query, wait for and destroy an event. The thread's current GPU may differ from the event's GPU,
// so the event first makes its own GPU current.
class CudaEvent final : public Event::State {
 public:
  explicit CudaEvent(int ordinal) : ordinal_(ordinal) {}
  ~CudaEvent() override {
    if (!event_) return;
    cudaSetDevice(ordinal_);
    cudaEventDestroy(event_);
  }
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;

  void record(cudaStream_t stream) {
    check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "cudaEventCreateWithFlags");
    check(cudaEventRecord(event_, stream), "cudaEventRecord");
  }
  // `issued` is a host event that is reached when record() has returned.
  void recorded_after(Event issued) { issued_ = std::move(issued); }
  const Event& issued() const { return issued_; }
  cudaEvent_t native() const { return event_; }

  bool reached() override {
    if (!issued_.reached()) return false;
    check(cudaSetDevice(ordinal_), "cudaSetDevice");
    const cudaError_t error = cudaEventQuery(event_);
    if (error == cudaErrorNotReady) {
      cudaGetLastError();  // clears the error, which the next kernel launch might otherwise report
      return false;
    }
    check(error, "cudaEventQuery");
    return true;
  }
  void synchronize() override {
    issued_.synchronize();
    check(cudaSetDevice(ordinal_), "cudaSetDevice");
    check(cudaEventSynchronize(event_), "cudaEventSynchronize");
  }

 private:
  const int ordinal_;
  cudaEvent_t event_ = nullptr;
  Event issued_;
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

}  // namespace

CudaStream::CudaStream(int ordinal, Waits waits) : ordinal_(ordinal) {
  check(cudaSetDevice(ordinal_), "cudaSetDevice");
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  if (waits == Waits::in_own_thread) issuer_ = make_host_stream();
}

CudaStream::~CudaStream() {
  issuer_.reset();
  cudaSetDevice(ordinal_);
  cudaStreamSynchronize(stream_);
  cudaStreamDestroy(stream_);
}

// Runs `call` now, or in the stream's own thread if that thread still has work in its queue. The returned event is
// reached when `call` has returned. After a failure in the stream's own thread, no more calls run. The returned event
// is then never reached, and its synchronize() throws the error of the failure.
Event CudaStream::issue(std::function<void()> call) {
  const auto on_device = [ordinal = ordinal_, call = std::move(call)] {
    check(cudaSetDevice(ordinal), "cudaSetDevice");
    call();
  };
  if (!issuer_ || issuer_->record().reached()) {
    on_device();
    return {};
  }
  issuer_->run(on_device);
  return issuer_->record();
}

void* CudaStream::native() const {
  if (issuer_) issuer_->synchronize();
  return stream_;
}

Event CudaStream::record() {
  auto event = std::make_shared<CudaEvent>(ordinal_);
  event->recorded_after(issue([event, stream = stream_] { event->record(stream); }));
  return Event(std::move(event));
}

void CudaStream::wait(const Event& event) {
  auto* const of_cuda = dynamic_cast<CudaEvent*>(event.state());
  const Event& of_host = of_cuda ? of_cuda->issued() : event;
  issuer_ ? issuer_->wait(of_host) : of_host.synchronize();
  if (!of_cuda) return;
  issue([event, of_cuda, stream = stream_] {
    check(cudaStreamWaitEvent(stream, of_cuda->native(), 0), "cudaStreamWaitEvent");
  });
}

void CudaStream::run(std::function<void()> work) {
  const auto after_device = [ordinal = ordinal_, stream = stream_, work = std::move(work)] {
    check(cudaSetDevice(ordinal), "cudaSetDevice");
    check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    work();
  };
  issuer_ ? issuer_->run(after_device) : after_device();
}

// Other threads may call CUDA at the same time. The capture is thread-local, so their calls do not affect it.
std::unique_ptr<StreamGraph> CudaStream::capture(const std::function<void()>& work) {
  TESSERA_ASSERT(!issuer_);
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
  issue([from, to, stream = stream_] {
    check(cudaMemcpyAsync(to.data, from.data, static_cast<size_t>(from.bytes()), cudaMemcpyDefault, stream),
          "cudaMemcpyAsync");
  });
}

}  // namespace tessera::cuda
