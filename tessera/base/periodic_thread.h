// Runs a function periodically on its own thread.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace tessera {

// Calls `work` after each pause of `interval_s` seconds, and once more when the thread ends. See start_thread() for
// signals and exceptions.
class PeriodicThread {
 public:
  // `purpose`: see start_thread().
  PeriodicThread(const char* purpose, double interval_s, std::function<void()> work);
  ~PeriodicThread() { stop(); }
  PeriodicThread(const PeriodicThread&) = delete;
  PeriodicThread& operator=(const PeriodicThread&) = delete;

  // Ends the thread and returns after the last call of `work`. Further calls of stop() do nothing.
  void stop();

 private:
  const std::function<void()> work_;
  std::mutex mutex_;
  std::condition_variable end_;
  bool ended_ = false;
  std::jthread thread_;
};

}  // namespace tessera
