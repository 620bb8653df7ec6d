#include "tessera/base/periodic_thread.h"

#include <signal.h>

#include <chrono>
#include <utility>

namespace tessera {

PeriodicThread::PeriodicThread(double interval_s, std::function<void()> work) : work_(std::move(work)) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this, interval_s] {
    for (bool ended = false; !ended;) {
      {
        std::unique_lock lock(mutex_);
        ended = end_.wait_for(lock, std::chrono::duration<double>(interval_s), [this] { return ended_; });
      }
      work_();
    }
  });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
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
