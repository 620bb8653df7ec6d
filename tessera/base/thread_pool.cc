#include "tessera/base/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <exception>

namespace tessera {

namespace {

// Waking a sleeping thread costs tens of microseconds, as long as a small operator: spin about that long first.
constexpr int kSpins = 4000;

int default_num_threads() {
  if (const char* text = std::getenv("OMP_NUM_THREADS")) {
    const int n = std::atoi(text);
    if (n > 0) return n;
  }
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1u, std::thread::hardware_concurrency());
}

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

ThreadPool::ThreadPool(int num_threads) {
  const int n = num_threads > 0 ? num_threads : default_num_threads();
  for (int i = 1; i < n; ++i) workers_.emplace_back([this] { work(); });
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
    ++generation_;
  }
  wake_.notify_all();
  for (auto& worker : workers_) worker.join();
}

void ThreadPool::take_tasks() {
  for (int64_t i; (i = next_.fetch_add(1)) < count_;) {
    try {
      (*task_)(i);
    } catch (...) {
      std::lock_guard lock(mutex_);
      if (!failure_) failure_ = std::current_exception();
      next_ = count_;
    }
  }
}

void ThreadPool::work() {
  uint64_t seen = 0;
  for (;;) {
    for (int i = 0; i < kSpins && generation_.load() == seen; ++i) pause();
    if (generation_.load() == seen) {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return generation_.load() != seen; });
    }
    seen = generation_.load();
    if (stop_) return;
    take_tasks();
    if (busy_.fetch_sub(1) == 1) {
      std::lock_guard lock(mutex_);
      done_.notify_one();
    }
  }
}

void ThreadPool::run(int64_t count, const std::function<void(int64_t)>& task) {
  if (count <= 0) return;
  if (count == 1 || workers_.empty()) {
    for (int64_t i = 0; i < count; ++i) task(i);
    return;
  }
  const std::lock_guard turn(turn_);
  {
    std::lock_guard lock(mutex_);
    task_ = &task;
    count_ = count;
    next_ = 0;
    failure_ = nullptr;
    busy_ = static_cast<int>(workers_.size());
    ++generation_;
  }
  wake_.notify_all();
  take_tasks();
  for (int i = 0; i < kSpins && busy_.load() != 0; ++i) pause();
  if (busy_.load() != 0) {
    std::unique_lock lock(mutex_);
    done_.wait(lock, [&] { return busy_.load() == 0; });
  }
  task_ = nullptr;
  // A worker that saw busy_ reach 0 may still be about to take the mutex to notify: it touches nothing of this loop.
  if (failure_) std::rethrow_exception(failure_);
}

void ThreadPool::for_ranges(int64_t count, int64_t grain, const std::function<void(int64_t, int64_t)>& task) {
  if (count <= 0) return;
  const int64_t ranges = std::clamp<int64_t>((count + grain - 1) / grain, 1, num_threads());
  run(ranges, [&](int64_t i) { task(count * i / ranges, count * (i + 1) / ranges); });
}

}  // namespace tessera
