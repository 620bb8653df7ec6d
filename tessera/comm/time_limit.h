// A time limit for calls that have no time limit of their own, such as the start of MPI.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace tessera {

class TimeLimit {
 public:
  // Calls `expire` on a separate thread if this object still exists after `seconds`. Throws RunError if the thread
  // cannot start.
  TimeLimit(double seconds, std::function<void()> expire);
  ~TimeLimit();
  TimeLimit(const TimeLimit&) = delete;
  TimeLimit& operator=(const TimeLimit&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  std::jthread thread_;
};

}  // namespace tessera
