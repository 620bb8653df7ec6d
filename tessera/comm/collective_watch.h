// Collectives that run on a device, where no thread of ours waits in them: a thread looks after them, so that one that
// does not end, or that its library gives up, is told with its name and ends the run.
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

// Collectives put on streams and not known to be done.
class PendingCollectives {
 public:
  using Clock = std::chrono::steady_clock;

  // Before the call that puts a collective on the stream, and after it: the call may itself wait for other ranks.
  // `collective` and `what` live as long as the program. The stream is not being captured.
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
    std::optional<Event> after;  // nothing while the call has not returned
    std::optional<Clock::time_point> since;
  };
  // Moves what is done to `done`. Of the collectives that their streams have come to and that are not done, the first
  // put there, and how long it has been seen so: one that waits for work of this rank does not run yet.
  std::optional<Running> look(Clock::time_point now, std::vector<Entry>& done);

 private:
  std::deque<Entry> entries_;
};

struct WatchOptions {
  int rank = 0;                  // of the world, by which errors name it
  double timeout_s = 600;        // a collective that runs longer has failed
  StatusBoard* board = nullptr;  // where it is told what the rank waits in; outlives the watch
  // Ends the run with this error, from the watch's thread or the caller's.
  std::function<void(const CommunicationError&)> fail;
};

class CollectiveWatch {
 public:
  // `library_error` tells what the collectives' library has found wrong, or an empty text: asked on the watch's thread
  // before it asks the streams' events.
  CollectiveWatch(const WatchOptions& options, std::function<std::string()> library_error);
  ~CollectiveWatch();  // ends the thread; collectives that run are no longer watched
  CollectiveWatch(const CollectiveWatch&) = delete;
  CollectiveWatch& operator=(const CollectiveWatch&) = delete;

  void begin(const char* collective, const char* what, Stream& stream);
  void called(Stream& stream);

 private:
  void work();
  // Nothing while all is well.
  std::optional<CommunicationError> look();
  // look() has not come back within the time limit: the computing thread is in a call that waits for the device with
  // the library's locks held, as allocating memory does, and the device waits for a collective.
  void unanswered();
  std::string last_call() const;
  CommunicationError timed_out(const std::string& call) const;

  const WatchOptions options_;
  const std::function<std::string()> library_error_;
  std::mutex mutex_;  // of the pending ones and the end
  std::condition_variable end_;
  bool ended_ = false;
  PendingCollectives pending_;
  std::atomic<int64_t> num_pending_ = 0;
  std::atomic<const char*> last_collective_ = "", last_what_ = "";  // begun
  // Of the watch's thread:
  std::string waiting_in_;
  std::optional<StatusBoard::Waiting> waiting_;
  std::thread thread_;
};

}  // namespace tessera
