// Streams and events: work that runs in order beside other work, and the hand-over between the two.
#pragma once

#include <functional>
#include <memory>

#include "tessera/base/view.h"

namespace tessera {

// A point in a stream's work. Default-constructed: already reached.
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
  // Returns once the work before it is done; throws what that work threw.
  void synchronize() const {
    if (state_) state_->synchronize();
  }
  // For the streams of the device that recorded it.
  State* state() const { return state_.get(); }

 private:
  std::shared_ptr<State> state_;
};

// What was put on a stream, to be put there again as one.
class StreamGraph {
 public:
  virtual ~StreamGraph() = default;
  virtual void launch() = 0;
};

// One queue of work of a device. Calls return at once, but for compute streams: the CPU's does the work in the calling
// thread, and a GPU's waits there for the host, if it is to wait for host work. Work that throws fails its stream: what
// follows on it is skipped, and whoever waits gets the exception. One thread puts work on a stream.
class Stream {
 public:
  virtual ~Stream() = default;  // waits for all its work
  // Reached when all work put on this stream so far is done.
  virtual Event record() = 0;
  // What follows on this stream begins after the event, of whichever stream.
  virtual void wait(const Event& event) = 0;
  // Runs host code in the stream's order. It must not touch the device.
  virtual void run(std::function<void()> work) = 0;
  // Equal bytes; either view may lie in the device's memory or in the host's.
  virtual void copy(View from, View to) = 0;
  void synchronize() { record().synchronize(); }
  // What `work` puts on this stream, kept instead of done: kernels and copies of a device, with the arguments of now;
  // no waiting and no host code. Null: the back end has no such thing, and `work` was not called.
  virtual std::unique_ptr<StreamGraph> capture([[maybe_unused]] const std::function<void()>& work) { return nullptr; }
  // The back end's own handle (cudaStream_t), or null.
  virtual void* native() const { return nullptr; }
};

// A stream of host work in a thread of its own, for communication and files beside the computation.
std::unique_ptr<Stream> make_host_stream();

}  // namespace tessera
