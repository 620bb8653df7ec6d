#include "tessera/base/periodic_thread.h"

#include <chrono>
#include <utility>

#include "tessera/base/start_thread.h"

namespace tessera {

PeriodicThread::PeriodicThread(const char* purpose, double interval_s, std::function<void()> work)
    : work_(std::move(work)) {
  thread_ = start_thread(purpose, [this, interval_s] {
    for (bool ended = false; !ended;) {
      {
        std::unique_lock lock(mutex_);
        ended = end_.wait_for(lock, std::chrono::duration<double>(interval_s), [this] { return ended_; });
      }
      work_();
    }
  });
}

void PeriodicThread::stop() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  end_.notify_one();
  thread_.join();
}

}  // namespace tessera
