// A time limit for what has none of its own, as MPI's start.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace tessera {

class TimeLimit {
 public:
  // Calls `expire` on a thread of its own if this object still lives after so long.
  TimeLimit(double seconds, std::function<void()> expire);
  ~TimeLimit();
  TimeLimit(const TimeLimit&) = delete;
  TimeLimit& operator=(const TimeLimit&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  std::thread thread_;
};

}  // namespace tessera
