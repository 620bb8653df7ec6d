// Watches collectives that run on a device. The device waits inside such a collective, but no thread of this program
// does. Therefore only a watch can notice that the collective fails. If a collective does not end in time, or its
// library reports a failure, the watch ends the run with an error that names the collective.
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
  // has returned. The watch needs both calls, because the function itself may wait for other ranks. The texts
  // `collective` ("all_gather") and `what` ("parameters of h.3") must live as long as the program. The stream must not
  // be capturing a graph.
  void begin(const char* collective, const char* what, Stream& stream);
  void called(Stream& stream);

  struct Running {
    std::string call;      // "all_gather of parameters of h.3"
    Clock::duration time;  // since the watch first saw the collective running
  };
  struct Entry {
    const char* collective;
    const char* what;
    const Stream* stream;
    Event before;                            // the end of the earlier work of the stream
    std::optional<Event> after;              // the end of the collective; empty until called()
    std::optional<Clock::time_point> since;  // when the watch first saw the collective running
  };
  // Moves the entries that are done to `done`. Returns the running collective that was queued first, or nullopt if no
  // collective is running. A collective is running if all earlier work of its stream is done and the collective itself
  // is not done.
  std::optional<Running> look(Clock::time_point now, std::vector<Entry>& done);

 private:
  std::deque<Entry> entries_;
};

struct WatchOptions {
  int rank = 0;                  // of this process in the world; errors name this rank
  double timeout_s = 600;        // a collective that runs longer has failed
  StatusBoard* board = nullptr;  // shows in which collective the rank waits; must outlive the watch
  // Ends the run with this error. The watch calls it on threads of its own.
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
  // Checks the library and all pending collectives once. Returns nullopt if nothing is wrong.
  std::optional<CommunicationError> look();
  // Runs when look() has not returned within the time limit. The computing thread is then in a call that waits for the
  // device, such as a memory allocation, and holds locks that look() needs. The device waits for a collective. The
  // error names the collective that was begun last. Does nothing if no collective is pending.
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
  std::atomic<const char*> last_collective_ = "", last_what_ = "";  // of the collective begun last
  // Only the watch's thread uses waiting_in_ and waiting_: the running collective, and its entry on the board.
  std::string waiting_in_;
  std::optional<StatusBoard::Waiting> waiting_;
  std::jthread thread_;
};

}  // namespace tessera
