// What GCC's static C++ library needs from a newer glibc than the one that packages are made for.
#include <stdint.h>
#include <stdlib.h>
#include <sys/random.h>

// glibc 2.32: whether the process has only one thread. 0 is always correct, and lets shared pointers count atomically.
__attribute__((visibility("hidden"))) char __libc_single_threaded = 0;

// glibc 2.38: C23's strtoul(), which also reads binary numbers. The C++ library of newer GCCs uses it.
__attribute__((visibility("hidden"))) unsigned long __isoc23_strtoul(const char* text, char** end, int base) {
  return strtoul(text, end, base);
}

// glibc 2.36: a random number, for std::random_device.
__attribute__((visibility("hidden"))) uint32_t arc4random(void) {
  uint32_t value;
  while (getrandom(&value, sizeof value, 0) != sizeof value) {
  }
  return value;
}
