// Watches collectives that run on a device. No thread of this program waits inside such a collective, so a watch is
// needed to notice its failure. If a collective does not end, or its library reports a failure, the watch names the
// collective in the error and ends the run.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/comm/status_board.h"
#include "tessera/device/stream.h"

namespace tessera {

// Collectives that are queued on streams and not yet known to be done.
class PendingCollectives {
 public:
  using Clock = std::chrono::steady_clock;

  // Call begin() before the library's function that queues a collective on the stream, and called() when this function
  // has returned. The watch needs both, because the function itself may wait for other ranks. `collective` and `what`
  // must live as long as the program. The stream must not be capturing a CUDA graph.
  void begin(const char* collective, const char* what, Stream& stream);
  void called(Stream& stream);

  struct Running {
    std::string call;  // "all_gather of parameters of h.3"
    Clock::duration time;
  };
  struct Entry {
    const char* collective;
    const char* what;
    const Stream* stream;
    Event before;
    std::optional<Event> after;              // empty until the call returns
    std::optional<Clock::time_point> since;  // when the watch first saw it running
  };
  // Moves the entries that are done to `done`. Returns the running collective that was queued first, and the time since
  // the watch first saw it running. A collective is running if all earlier work of its stream is done, but the
  // collective is not. Returns nullopt if no collective is running.
  std::optional<Running> look(Clock::time_point now, std::vector<Entry>& done);

 private:
  std::deque<Entry> entries_;
};

struct WatchOptions {
  int rank = 0;                  // in the world; errors name it
  double timeout_s = 600;        // a collective that runs longer has failed
  StatusBoard* board = nullptr;  // shows in which collective the rank waits; outlives the watch
  // Ends the run with this error. The watch calls it on one of its own threads.
  std::function<void(const CommunicationError&)> fail;
};

class CollectiveWatch {
 public:
  // `library_error` returns the failure that the collectives' library reports, or an empty text. The watch's thread
  // calls this function before each query of the streams' events.
  CollectiveWatch(const WatchOptions& options, std::function<std::string()> library_error);
  ~CollectiveWatch();  // ends the thread; running collectives are no longer watched
  CollectiveWatch(const CollectiveWatch&) = delete;
  CollectiveWatch& operator=(const CollectiveWatch&) = delete;

  void begin(const char* collective, const char* what, Stream& stream);
  void called(Stream& stream);

 private:
  void work();
  // Returns the error that ends the run, or nullopt if nothing is wrong.
  std::optional<CommunicationError> look();
  // Runs if look() does not return within the time limit. This happens if the device waits for a collective while the
  // computing thread waits for the device (for example in a memory allocation) and holds locks that look() needs. If a
  // collective is pending, ends the run with an error that names the collective begun last.
  void unanswered();
  std::string last_call() const;
  CommunicationError timed_out(const std::string& call) const;

  const WatchOptions options_;
  const std::function<std::string()> library_error_;
  std::mutex mutex_;  // guards pending_ and ended_
  std::condition_variable end_;
  bool ended_ = false;
  PendingCollectives pending_;
  std::atomic<int64_t> num_pending_ = 0;
  std::atomic<const char*> last_collective_ = "", last_what_ = "";  // the latest collective begun
  // Used by the watch's thread only:
  std::string waiting_in_;
  std::optional<StatusBoard::Waiting> waiting_;
  std::thread thread_;
};

}  // namespace tessera
