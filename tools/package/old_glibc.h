// Included before every file of a package: what an older glibc and its kernel headers lack.
#ifdef __cplusplus
#include <bits/c++config.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

// GCC's C++ library was configured for a newer glibc. Its headers must not use these functions.
#undef _GLIBCXX_USE_PTHREAD_COND_CLOCKWAIT
#undef _GLIBCXX_USE_PTHREAD_MUTEX_CLOCKLOCK
#undef _GLIBCXX_USE_PTHREAD_RWLOCK_CLOCKLOCK

// glibc 2.28 and 2.30 add functions for these system calls.
inline int renameat2(int old_folder, const char* old_path, int new_folder, const char* new_path, unsigned flags) {
  return static_cast<int>(syscall(SYS_renameat2, old_folder, old_path, new_folder, new_path, flags));
}
inline pid_t gettid() {
  return static_cast<pid_t>(syscall(SYS_gettid));
}
#ifndef RENAME_EXCHANGE
#define RENAME_NOREPLACE 1
#define RENAME_EXCHANGE 2
#endif
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif
#endif
