// A fixed team of threads for data-parallel loops.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace tessera {

class ThreadPool {
 public:
  // num_threads includes the calling thread. 0: the value of OMP_NUM_THREADS or, if this is not a positive number, the
  // number of cores that this process may use. Throws RunError if a thread cannot start.
  explicit ThreadPool(int num_threads = 0);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls task(i) once for every i in [0, count), distributed over the team in an undefined order. Returns when all
  // tasks are done. The caller runs tasks, too. run() does not wait for a worker that has not entered the loop yet, for
  // example because another program uses its core. If a task throws, tasks that have not started are skipped. When the
  // running tasks have ended, run() throws the first exception again. A task must not call run() of the same pool.
  // Several threads may call run() at the same time. Loops that use the workers then run one after another. A loop of
  // one task, or of a pool without workers, runs immediately on the thread that calls run().
  void run(int64_t count, const std::function<void(int64_t)>& task);

  // Splits [0, count) into contiguous ranges of nearly equal length, and calls task(begin, end) for each. The number of
  // ranges is count / grain, rounded up, but at most num_threads(). The split depends only on count, grain and
  // num_threads().
  void for_ranges(int64_t count, int64_t grain, const std::function<void(int64_t, int64_t)>& task);

 private:
  void work();
  void end_workers();
  void take_tasks();
  void open_gate(bool for_tasks);

  std::vector<std::jthread> workers_;
  std::mutex turn_;  // held by the thread whose loop uses the workers
  std::mutex mutex_;
  std::condition_variable wake_, done_;
  // State of the current loop. run() sets it up while no worker is inside a loop.
  const std::function<void(int64_t)>* task_ = nullptr;
  int64_t count_ = 0;
  std::atomic<int64_t> next_{0};
  std::exception_ptr failure_;
  // Three values in one integer: the number of the loop, whether workers may still enter the loop, and how many workers
  // are inside it. A worker spins on this integer for a moment before it sleeps.
  std::atomic<uint64_t> gate_{0};
  std::atomic<bool> stop_{false};
};

}  // namespace tessera
