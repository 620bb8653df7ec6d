#include "tessera/base/library.h"

#include <atomic>
#include <mutex>
#include <utility>

namespace tessera {

namespace {

std::atomic<bool> in_library = false;
std::mutex lost_mutex;
std::exception_ptr lost_failure;  // guarded by lost_mutex

}  // namespace

void become_library() {
  in_library = true;
}

bool is_library() {
  return in_library;
}

void keep_lost_failure(std::exception_ptr failure) noexcept {
  const std::lock_guard lock(lost_mutex);
  if (!lost_failure) lost_failure = std::move(failure);
}

void rethrow_lost_failure() {
  std::exception_ptr failure;
  {
    const std::lock_guard lock(lost_mutex);
    failure = std::exchange(lost_failure, nullptr);
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace tessera
