// A stream runs its work in order, concurrently with other streams. Events synchronize streams.
#pragma once

#include <functional>
#include <memory>

#include "tessera/base/clock.h"
#include "tessera/base/view.h"

namespace tessera {

// A point in a stream's work. A default-constructed event is already reached.
class Event {
 public:
  struct State {
    virtual ~State() = default;
    virtual bool reached() = 0;
    virtual void synchronize() = 0;
  };
  Event() = default;
  explicit Event(std::shared_ptr<State> state) : state_(std::move(state)) {}

  bool reached() const { return !state_ || state_->reached(); }
  // Waits until the work before the event is done. If that work failed, throws its error.
  void synchronize() const {
    if (state_) state_->synchronize();
  }
  // Only for implementations of Stream: they check whether the event is of their own kind.
  State* state() const { return state_.get(); }

 private:
  std::shared_ptr<State> state_;
};

// Recorded work of a stream. Each launch() puts all of this work on that stream, in one call of the back end.
class StreamGraph {
 public:
  virtual ~StreamGraph() = default;
  virtual void launch() = 0;
};

// One queue of work of a device. Only one thread may put work on a stream.
//
// Compute stream of a CPU: the calling thread does the work. Compute stream of a GPU: kernels and copies run
// asynchronously, but run() executes host code in the calling thread, after the stream's earlier work. wait() blocks
// the calling thread if the event is of a host stream, or if another stream's thread has not recorded it yet. If work
// throws on a compute stream, the call that put it there throws.
//
// All other streams: calls that put work on the stream return immediately. If the work throws later, the stream fails:
// the stream skips all later work, and every caller that waits for the stream gets the exception.
class Stream {
 public:
  virtual ~Stream() = default;  // waits for all its work
  // Returns an event that is reached when all work put on this stream so far is done.
  virtual Event record() = 0;
  // Later work on this stream starts after the event. The event may be of any stream.
  virtual void wait(const Event& event) = 0;
  // Runs host code in the order of the stream. The code must not use the device.
  virtual void run(std::function<void()> work) = 0;
  // The same for code that reads or writes `bytes` bytes of a file.
  virtual void transfer_file([[maybe_unused]] bool reads, [[maybe_unused]] int64_t bytes, std::function<void()> work) {
    run(std::move(work));
  }
  // Copies `from` to `to`. Their sizes in bytes must be equal. Each view may be in device memory or in host memory.
  virtual void copy(View from, View to) = 0;
  void synchronize() { record().synchronize(); }
  // The time, in seconds, at which host code on this stream runs. Simulated on the counting device.
  virtual double clock() const { return steady_seconds(); }
  // Calls `work` and records the kernels and copies that it puts on this stream, with their current arguments.
  // capture() does not run them. `work` must not wait and must not put host code on the stream. If the back end does
  // not support recording, returns null without calling `work`.
  virtual std::unique_ptr<StreamGraph> capture([[maybe_unused]] const std::function<void()>& work) { return nullptr; }
  // The back end's own handle (cudaStream_t), or null.
  virtual void* native() const { return nullptr; }
};

// A stream of host work with its own thread, for communication and file access that overlap the computation.
std::unique_ptr<Stream> make_host_stream();

}  // namespace tessera
