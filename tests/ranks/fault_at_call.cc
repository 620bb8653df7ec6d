// A library for LD_PRELOAD. It counts chosen calls of a process. Some of these calls get a fault: the call fails, it
// transfers fewer bytes, or the process gets a signal before the call. Environment variables choose the calls
// and the fault:
//
//   FAULT_CALLS  the calls to count, separated by blanks. For reading: open_read, read, pread, fstat, stat, opendir,
//                readdir. For writing: open_write, write, pwrite, fsync, ftruncate, mkdir, rename. Others: flock,
//                process_vm_readv
//   FAULT_PATH   counts only calls on files with this text in their absolute path; empty: calls on all files. Standard
//                streams never count. process_vm_readv has no path and always counts
//   FAULT_RANK   counts only the calls of this rank; empty: of all processes
//   FAULT_CALL   the first counted call that gets a fault: 1 for the first counted call, and so on; empty: no fault
//   FAULT_TIMES  how many consecutive counted calls get the fault (default 1)
//   FAULT_KIND   "error N": the call fails with errno N; "signal N": the process gets signal N before the call;
//                "short": the call (read, pread, write, pwrite) transfers only the first half of its bytes
//   FAULT_COUNT  the path of a file: when the process ends, it writes the number of counted calls to this file
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

const char* variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

bool is_chosen(const char* call) {
  static const char* const chosen = variable("FAULT_CALLS");
  const size_t length = std::strlen(call);
  for (const char* at = std::strstr(chosen, call); at; at = std::strstr(at + 1, call)) {
    if ((at == chosen || at[-1] == ' ') && (at[length] == ' ' || at[length] == 0)) return true;
  }
  return false;
}

bool is_the_rank() {
  static const bool is = [] {
    const char* wanted = variable("FAULT_RANK");
    if (!*wanted) return true;
    for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "RANK"}) {
      if (*variable(name)) return std::strcmp(wanted, variable(name)) == 0;
    }
    return false;
  }();
  return is;
}

bool is_meant(const char* path) {
  static const char* const wanted = variable("FAULT_PATH");
  if (path[0] == '/') return std::strstr(path, wanted);
  char folder[PATH_MAX], full[2 * PATH_MAX];
  std::snprintf(full, sizeof full, "%s/%s", getcwd(folder, sizeof folder) ? folder : "", path);
  return std::strstr(full, wanted);
}

bool is_meant(int file) {
  if (file <= STDERR_FILENO) return false;  // standard streams have no faults, so errors can be reported
  if (!*variable("FAULT_PATH")) return true;
  char link[64], path[PATH_MAX];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  const ssize_t length = readlink(link, path, sizeof path - 1);
  if (length <= 0) return false;
  path[length] = 0;
  return path[0] == '/' && is_meant(path);  // "socket:[7]", "anon_inode:[eventfd]" are not paths
}

bool is_meant(std::nullptr_t) {
  return true;
}

std::atomic<long> num_calls{0};
enum class Fault { none, error, half };

// Counts a call and returns its fault. Before it returns Fault::error, it sets errno. If the fault is a signal, it
// raises the signal and then returns Fault::none.
Fault next_fault() {
  static const long first = std::atol(variable("FAULT_CALL")), times = std::max(1L, std::atol(variable("FAULT_TIMES")));
  static const char* const kind = variable("FAULT_KIND");
  const long call = ++num_calls;
  if (first == 0 || call < first || call - first >= times) return Fault::none;
  int number = 0;
  if (std::sscanf(kind, "error %d", &number) == 1) {
    errno = number;
    return Fault::error;
  }
  if (std::sscanf(kind, "signal %d", &number) == 1) std::raise(number);
  return std::strcmp(kind, "short") == 0 ? Fault::half : Fault::none;
}

// `target`: the path or the descriptor of the file, or nullptr for a call without a file.
template <typename Target>
Fault fault_in(const char* call, Target target) {
  return is_chosen(call) && is_the_rank() && is_meant(target) ? next_fault() : Fault::none;
}

template <typename Target>
bool fails(const char* call, Target target) {
  return fault_in(call, target) == Fault::error;
}

template <typename Real>
ssize_t transfer(const char* call, int file, size_t bytes, const Real& real) {
  const Fault fault = fault_in(call, file);
  if (fault == Fault::error) return -1;
  return real(fault == Fault::half && bytes > 1 ? bytes / 2 : bytes);
}

bool open_fails(const char* path, int flags) {
  return fails((flags & O_ACCMODE) == O_RDONLY ? "open_read" : "open_write", path);
}

__attribute__((destructor)) void write_count() {
  if (!is_the_rank() || !*variable("FAULT_COUNT")) return;
  if (FILE* file = std::fopen(variable("FAULT_COUNT"), "w")) {
    std::fprintf(file, "%ld", num_calls.load());
    std::fclose(file);
  }
}

}  // namespace

// The real function that this library replaces.
#define REAL(name)                                                                        \
  ([] {                                                                                   \
    static auto* const real = reinterpret_cast<decltype(&name)>(dlsym(RTLD_NEXT, #name)); \
    return real;                                                                          \
  }())

extern "C" {

#define FAULT_OPEN(name)                                                 \
  int name(const char* path, int flags, ...) {                           \
    va_list arguments;                                                   \
    va_start(arguments, flags);                                          \
    const mode_t mode = flags & O_CREAT ? va_arg(arguments, mode_t) : 0; \
    va_end(arguments);                                                   \
    return open_fails(path, flags) ? -1 : REAL(name)(path, flags, mode); \
  }
FAULT_OPEN(open)
FAULT_OPEN(open64)

ssize_t read(int file, void* data, size_t bytes) {
  return transfer("read", file, bytes, [&](size_t some) { return REAL(read)(file, data, some); });
}

ssize_t pread(int file, void* data, size_t bytes, off_t offset) {
  return transfer("pread", file, bytes, [&](size_t some) { return REAL(pread)(file, data, some, offset); });
}

ssize_t pread64(int file, void* data, size_t bytes, off64_t offset) {
  return transfer("pread", file, bytes, [&](size_t some) { return REAL(pread64)(file, data, some, offset); });
}

ssize_t write(int file, const void* data, size_t bytes) {
  return transfer("write", file, bytes, [&](size_t some) { return REAL(write)(file, data, some); });
}

ssize_t pwrite(int file, const void* data, size_t bytes, off_t offset) {
  return transfer("pwrite", file, bytes, [&](size_t some) { return REAL(pwrite)(file, data, some, offset); });
}

ssize_t pwrite64(int file, const void* data, size_t bytes, off64_t offset) {
  return transfer("pwrite", file, bytes, [&](size_t some) { return REAL(pwrite64)(file, data, some, offset); });
}

int fstat(int file, struct stat* status) noexcept {
  return fails("fstat", file) ? -1 : REAL(fstat)(file, status);
}

int stat(const char* path, struct stat* status) noexcept {
  return fails("stat", path) ? -1 : REAL(stat)(path, status);
}

DIR* opendir(const char* path) {
  return fails("opendir", path) ? nullptr : REAL(opendir)(path);
}

dirent* readdir(DIR* stream) {
  return fails("readdir", dirfd(stream)) ? nullptr : REAL(readdir)(stream);
}

dirent64* readdir64(DIR* stream) {
  return fails("readdir", dirfd(stream)) ? nullptr : REAL(readdir64)(stream);
}

int fsync(int file) {
  return fails("fsync", file) ? -1 : REAL(fsync)(file);
}

int ftruncate(int file, off_t length) noexcept {
  return fails("ftruncate", file) ? -1 : REAL(ftruncate)(file, length);
}

int mkdir(const char* path, mode_t mode) noexcept {
  return fails("mkdir", path) ? -1 : REAL(mkdir)(path, mode);
}

int rename(const char* from, const char* to) noexcept {
  return fails("rename", to) ? -1 : REAL(rename)(from, to);
}

int renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) noexcept {
  return fails("rename", to) ? -1 : REAL(renameat2)(from_folder, from, to_folder, to, flags);
}

int flock(int file, int operation) noexcept {
  return fails("flock", file) ? -1 : REAL(flock)(file, operation);
}

ssize_t process_vm_readv(pid_t pid, const iovec* local, unsigned long num_local, const iovec* remote,
                         unsigned long num_remote, unsigned long flags) noexcept {
  if (fails("process_vm_readv", nullptr)) return -1;
  return REAL(process_vm_readv)(pid, local, num_local, remote, num_remote, flags);
}

}  // extern "C"
