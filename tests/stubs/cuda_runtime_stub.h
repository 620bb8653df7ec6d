// What the stand-in for CUDA's runtime tells tests.
#pragma once

#include <atomic>
#include <thread>

namespace cuda_runtime_stub {

extern std::atomic<std::thread::id> most_recent_waiter;  // the thread that last met a stream without room for its call

}  // namespace cuda_runtime_stub
