// The thread of a stream takes pieces of work from a queue. An event is reached when all pieces that were queued before
// record() are done. If a piece throws, the thread skips all later pieces. From then on, reached() is false for every
// event of the stream, and synchronize() throws the exception of that piece.
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

#include "tessera/base/start_thread.h"
#include "tessera/device/stream.h"

namespace tessera {
namespace {

// The stream shares this object with its events, because they may outlive the stream.
struct Progress {
  std::mutex mutex;
  std::condition_variable advanced;
  uint64_t num_done = 0;  // pieces that ended, including those skipped after a failure
  std::exception_ptr failure;
};

class HostEvent final : public Event::State {
 public:
  HostEvent(std::shared_ptr<Progress> progress, uint64_t target) : progress_(std::move(progress)), target_(target) {}
  bool reached() override {
    const std::lock_guard lock(progress_->mutex);
    return progress_->num_done >= target_ && !progress_->failure;
  }
  void synchronize() override {
    std::unique_lock lock(progress_->mutex);
    progress_->advanced.wait(lock, [&] { return progress_->num_done >= target_; });
    if (progress_->failure) std::rethrow_exception(progress_->failure);
  }

 private:
  std::shared_ptr<Progress> progress_;
  uint64_t target_;
};

class HostStream final : public Stream {
 public:
  HostStream() : thread_(start_thread("a stream of the host", [this] { work(); })) {}
  ~HostStream() override {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    wake_.notify_one();
    thread_.join();
  }

  Event record() override { return Event(std::make_shared<HostEvent>(progress_, num_put_)); }
  void wait(const Event& event) override {
    if (!event.reached()) run([event] { event.synchronize(); });
  }
  void run(std::function<void()> work) override {
    {
      const std::lock_guard lock(mutex_);
      queue_.push_back(std::move(work));
    }
    ++num_put_;
    wake_.notify_one();
  }
  void copy(View from, View to) override {
    TESSERA_ASSERT(from.bytes() == to.bytes());
    run([from, to] {
      if (from.bytes() > 0) std::memcpy(to.data, from.data, static_cast<size_t>(from.bytes()));
    });
  }

 private:
  void work() {
    for (;;) {
      std::function<void()> next;
      {
        std::unique_lock lock(mutex_);
        wake_.wait(lock, [&] { return stop_ || !queue_.empty(); });
        if (queue_.empty()) return;
        next = std::move(queue_.front());
        queue_.pop_front();
      }
      std::exception_ptr failure;
      if (!failed_) {
        try {
          next();
        } catch (...) {
          failure = std::current_exception();
          failed_ = true;
        }
      }
      next = nullptr;  // destroys captured objects before num_done counts the piece
      {
        const std::lock_guard lock(progress_->mutex);
        ++progress_->num_done;
        if (failure) progress_->failure = failure;
      }
      progress_->advanced.notify_all();
    }
  }

  std::shared_ptr<Progress> progress_ = std::make_shared<Progress>();
  uint64_t num_put_ = 0;  // used only by the thread that puts work on the stream
  std::mutex mutex_;      // guards queue_ and stop_
  std::condition_variable wake_;
  std::deque<std::function<void()>> queue_;
  bool stop_ = false;
  bool failed_ = false;  // used only by thread_
  std::jthread thread_;
};

}  // namespace

std::unique_ptr<Stream> make_host_stream() {
  return std::make_unique<HostStream>();
}

}  // namespace tessera
