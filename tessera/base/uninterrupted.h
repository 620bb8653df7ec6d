// System calls that signals can interrupt.
#pragma once

#include <cerrno>

namespace tessera {

// Repeats a system call while signals interrupt it (EINTR). Returns the result of the last call. If this result
// is -1, errno is not EINTR.
template <typename Call>
auto uninterrupted(Call call) {
  for (;;) {
    const auto result = call();
    if (result != -1 || errno != EINTR) return result;
  }
}

}  // namespace tessera
