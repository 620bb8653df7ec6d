// System calls that signals interrupt.
#pragma once

#include <cerrno>

namespace tessera {

// Makes a system call again as long as a signal interrupts it. Returns its result; -1 with another errno than EINTR
// where it fails.
template <typename Call>
auto uninterrupted(Call call) {
  for (;;) {
    const auto result = call();
    if (result != -1 || errno != EINTR) return result;
  }
}

}  // namespace tessera
