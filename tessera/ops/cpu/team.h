// The threads of a kernel, and the scratch of each thread.
#pragma once

#include <algorithm>
#include <atomic>
#include <functional>

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

#include "tessera/base/math.h"
#include "tessera/device/device.h"
#include "tessera/ops/back_ends.h"

namespace tessera::cpu {

// While an object of this class exists, the thread that created it treats denormal operands and results as 0. Such
// small values do not matter in kernels, and each would cost a hundred cycles. Has no effect without SSE2.
class FlushDenormals {
 public:
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;
#if defined(__SSE2__)
  // 0x8040: the bits "denormals are zero" (operands) and "flush to zero" (results).
  FlushDenormals() : kept_(_mm_getcsr()) {
    _mm_setcsr(kept_ | 0x8040u);
  }
  ~FlushDenormals() {
    _mm_setcsr(kept_);
  }

 private:
  unsigned kept_;
#else
  FlushDenormals() {}
#endif
};

class Team {
 public:
  explicit Team(Device& device)
      : pool_(thread_pool_of(device)),
        scratch_(device.allocate(pool_.num_threads() * kCpuScratchBytesPerThread, Category::workspace)) {}

  int num_threads() const { return pool_.num_threads(); }

  // Calls body(thread) once for every thread in [0, num_threads()). The calls run concurrently. Allocates no memory,
  // because std::function stores a reference wrapper in place.
  template <typename Body>
  void run(Body&& body) {
    auto flushed = [&](int64_t thread) {
      const FlushDenormals flush;
      body(thread);
    };
    pool_.run(num_threads(), std::ref(flushed));
  }

  // Calls body(thread, i) once for every i in [0, count). The calls start in ascending order of i. Any thread may run
  // the call for any i, so a call must write only the data of its i and the scratch of its thread.
  template <typename Body>
  void for_each(int64_t count, Body&& body) {
    std::atomic<int64_t> next{0};
    run([&](int64_t thread) {
      for (int64_t i; (i = next.fetch_add(1)) < count;) body(thread, i);
    });
  }

  // Splits [0, count) into one contiguous range per thread and calls body(thread, begin, end) for each range that is
  // not empty. Bounds are multiples of `multiple`, except for the last end, which is `count`. The ranges depend only on
  // `count`, `multiple` and num_threads().
  template <typename Body>
  void for_ranges(int64_t count, int64_t multiple, Body&& body) {
    const int64_t units = ceil_divide(count, multiple), threads = num_threads();
    auto range = [&](int64_t thread) {
      const int64_t begin = units * thread / threads * multiple;
      const int64_t end = std::min(count, units * (thread + 1) / threads * multiple);
      if (begin < end) body(thread, begin, end);
    };
    if (units <= 1) {
      const FlushDenormals flush;
      if (count > 0) body(0, 0, count);
    } else {
      run(range);
    }
  }

  // The scratch of a thread, as elements of T.
  template <typename T>
  T* scratch(int64_t thread) const {
    return reinterpret_cast<T*>(scratch_.data() + thread * kCpuScratchBytesPerThread);
  }
  template <typename T>
  static constexpr int64_t scratch_elems() {
    return kCpuScratchBytesPerThread / static_cast<int64_t>(sizeof(T));
  }

 private:
  ThreadPool& pool_;
  Buffer scratch_;
};

}  // namespace tessera::cpu
