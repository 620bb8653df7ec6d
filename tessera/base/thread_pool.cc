#include "tessera/base/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <exception>

#include "tessera/base/math.h"
#include "tessera/base/start_thread.h"

namespace tessera {

namespace {

// Waking a sleeping thread takes tens of microseconds, as long as a small operator runs. Threads therefore spin for
// about this time before they sleep.
constexpr int kSpins = 4000;

// The bit fields of gate_ (thread_pool.h). The lowest 16 bits are the number of workers inside the current loop. The
// next bit is set while workers may enter this loop. The upper bits are the number of this loop.
constexpr uint64_t kInside = 0xFFFF, kOpen = kInside + 1, kNextLoop = 2 * kOpen;

uint64_t loop_of(uint64_t gate) {
  return gate / kNextLoop;
}

int default_num_threads() {
  if (const char* text = std::getenv("OMP_NUM_THREADS")) {
    const int n = std::atoi(text);
    if (n > 0) return n;
  }
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

ThreadPool::ThreadPool(int num_threads) {
  const int n = num_threads > 0 ? num_threads : default_num_threads();
  try {
    for (int i = 1; i < n; ++i) workers_.push_back(start_thread("computing", [this] { work(); }));
  } catch (...) {
    end_workers();  // those that have started
    throw;
  }
}

ThreadPool::~ThreadPool() {
  end_workers();
}

void ThreadPool::end_workers() {
  stop_ = true;
  open_gate(false);
  for (auto& worker : workers_) worker.join();
}

// Starts the next loop and wakes the workers. If `for_tasks` is false, they must not enter this loop: they only check
// stop_. Call open_gate() while no worker is inside a loop.
void ThreadPool::open_gate(bool for_tasks) {
  {
    std::lock_guard lock(mutex_);
    gate_ = (loop_of(gate_) + 1) * kNextLoop + (for_tasks ? kOpen : 0);
  }
  wake_.notify_all();
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
  for (uint64_t seen = 0;;) {
    for (int i = 0; i < kSpins && loop_of(gate_) == seen; ++i) pause();
    if (loop_of(gate_) == seen) {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return loop_of(gate_) != seen; });
    }
    uint64_t gate = gate_;
    while (gate & kOpen && !gate_.compare_exchange_weak(gate, gate + 1)) {
    }
    seen = loop_of(gate);
    if (gate & kOpen) {
      take_tasks();
      if ((gate_.fetch_sub(1) & (kOpen | kInside)) == 1) {  // closed, and this worker was the last inside: wake run()
        std::lock_guard lock(mutex_);
        done_.notify_one();
      }
    } else if (stop_) {  // must be read after gate_, because the destructor sets stop_ before it changes gate_
      return;
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
  task_ = &task;
  count_ = count;
  next_ = 0;
  failure_ = nullptr;
  open_gate(true);
  take_tasks();
  gate_ &= ~kOpen;
  const auto is_empty = [this] { return (gate_ & kInside) == 0; };
  for (int i = 0; i < kSpins && !is_empty(); ++i) pause();
  if (!is_empty()) {
    std::unique_lock lock(mutex_);
    done_.wait(lock, is_empty);
  }
  // At this point, the last worker may still have to lock the mutex and notify. run() can return nevertheless: this
  // worker accesses no data of the loop any more.
  if (failure_) std::rethrow_exception(failure_);
}

void ThreadPool::for_ranges(int64_t count, int64_t grain, const std::function<void(int64_t, int64_t)>& task) {
  if (count <= 0) return;
  const int64_t ranges = std::clamp<int64_t>(ceil_divide(count, grain), 1, num_threads());
  run(ranges, [&](int64_t i) { task(count * i / ranges, count * (i + 1) / ranges); });
}

}  // namespace tessera
