#include "tessera/comm/time_limit.h"

#include <chrono>
#include <utility>

#include "tessera/base/start_thread.h"

namespace tessera {

TimeLimit::TimeLimit(double seconds, std::function<void()> expire)
    : thread_(start_thread("a time limit", [this, seconds, expire = std::move(expire)] {
        std::unique_lock lock(mutex_);
        if (!changed_.wait_for(lock, std::chrono::duration<double>(seconds), [this] { return done_; })) expire();
      })) {}

TimeLimit::~TimeLimit() {
  {
    const std::lock_guard lock(mutex_);
    done_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

}  // namespace tessera
