// Preloaded into a run (LD_PRELOAD), kills the rank DIE_RANK as it enters its DIE_CALL-th call that reads another
// rank's memory or changes a file: every place of a step and of a save where ranks depend on each other or on the disk.
// It is killed, or gets the signal DIE_SIGNAL.
// Calls count from 1; how many there were is written to the file DIE_COUNT at the end.
#include <dlfcn.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

const char* variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

bool is_the_rank() {
  static const char* const rank =
      *variable("OMPI_COMM_WORLD_RANK") ? variable("OMPI_COMM_WORLD_RANK") : variable("PMI_RANK");  // Open MPI; MPICH
  static const bool is = *variable("DIE_RANK") && !std::strcmp(variable("DIE_RANK"), rank);
  return is;
}

std::atomic<long> num_calls{0};

void count_call() {
  static const long last = std::atol(variable("DIE_CALL"));
  if (!is_the_rank() || ++num_calls != last) return;
  std::raise(*variable("DIE_SIGNAL") ? std::atoi(variable("DIE_SIGNAL")) : SIGKILL);
}

// The function of this name that would have been called.
template <typename Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

__attribute__((destructor)) void tell_count() {
  if (!is_the_rank() || !*variable("DIE_COUNT")) return;
  if (FILE* file = std::fopen(variable("DIE_COUNT"), "w")) {
    std::fprintf(file, "%ld", num_calls.load());
    std::fclose(file);
  }
}

}  // namespace

extern "C" {

ssize_t process_vm_readv(pid_t pid, const iovec* local, unsigned long num_local, const iovec* remote,
                         unsigned long num_remote, unsigned long flags) noexcept {
  count_call();
  static auto* const real = next<decltype(process_vm_readv)>("process_vm_readv");
  return real(pid, local, num_local, remote, num_remote, flags);
}

ssize_t pwrite(int file, const void* data, size_t bytes, off_t offset) {
  count_call();
  static auto* const real = next<decltype(pwrite)>("pwrite");
  return real(file, data, bytes, offset);
}

ssize_t pwrite64(int file, const void* data, size_t bytes, off64_t offset) {
  count_call();
  static auto* const real = next<decltype(pwrite64)>("pwrite64");
  return real(file, data, bytes, offset);
}

int fsync(int file) {
  count_call();
  static auto* const real = next<decltype(fsync)>("fsync");
  return real(file);
}

int mkdir(const char* path, mode_t mode) noexcept {
  count_call();
  static auto* const real = next<decltype(mkdir)>("mkdir");
  return real(path, mode);
}

int rename(const char* from, const char* to) noexcept {
  count_call();
  static auto* const real = next<decltype(rename)>("rename");
  return real(from, to);
}

int renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) noexcept {
  count_call();
  static auto* const real = next<decltype(renameat2)>("renameat2");
  return real(from_folder, from, to_folder, to, flags);
}

}  // extern "C"
