// Preloaded into a run (LD_PRELOAD), makes calls on files below FAULT_FOLDER fail, or ends the process in them:
//
//   FAULT_CLASS   the calls that count: read (open for reading, read) or write (open for writing, write, sync, rename, …)
//   FAULT_CALL    the first of them that fails, from 1; without it none does
//   FAULT_TIMES   how many fail (default 1)
//   FAULT_KIND    an errno's name, "short" (half of the bytes), or a signal's number, which the process gets in the call
//   FAULT_RANK    the rank that is meant; without it every process is
//   FAULT_COUNT   a file that gets the number of the calls at the end
#include <dlfcn.h>
#include <fcntl.h>
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

bool is_the_rank() {
  static const bool is = [] {
    const char* wanted = variable("FAULT_RANK");
    if (!*wanted) return true;
    for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"}) {
      if (*variable(name)) return std::strcmp(wanted, variable(name)) == 0;
    }
    return false;
  }();
  return is;
}

bool is_below(const char* path) {
  static const char* const folder = variable("FAULT_FOLDER");
  return *folder && std::strncmp(path, folder, std::strlen(folder)) == 0;
}

bool is_meant(int file) {
  if (file <= STDERR_FILENO) return false;  // where the error is reported
  char link[64], path[PATH_MAX];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  const ssize_t length = readlink(link, path, sizeof path - 1);
  if (length <= 0) return false;
  path[length] = 0;
  return is_below(path);
}

bool is_meant(const char* path) {
  if (path[0] == '/') return is_below(path);
  char folder[PATH_MAX];
  return getcwd(folder, sizeof folder) && is_below(folder);  // the tests give paths inside their folder
}

int error_of(const char* kind) {
  constexpr struct {
    const char* name;
    int number;
  } kErrors[] = {{"EIO", EIO},       {"ENOSPC", ENOSPC}, {"EINTR", EINTR}, {"ESTALE", ESTALE},
                 {"EMFILE", EMFILE}, {"ENOMEM", ENOMEM}, {"EAGAIN", EAGAIN}};
  for (const auto& [name, number] : kErrors) {
    if (!std::strcmp(kind, name)) return number;
  }
  return 0;
}

std::atomic<long> num_calls{0};
enum class Fault { none, error, half };

// What happens to a call of this class on what is meant.
Fault fault_of(const char* kind_of_call) {
  static const char* const wanted = variable("FAULT_CLASS");
  static const long first = std::atol(variable("FAULT_CALL")), times = std::max(1L, std::atol(variable("FAULT_TIMES")));
  static const char* const kind = variable("FAULT_KIND");
  if (std::strcmp(wanted, kind_of_call)) return Fault::none;
  const long call = ++num_calls;
  if (first == 0 || call < first || call - first >= times) return Fault::none;
  if (!std::strcmp(kind, "short")) return Fault::half;
  if (const int error = error_of(kind)) {
    errno = error;
    return Fault::error;
  }
  std::raise(std::atoi(kind));
  return Fault::none;
}

template <typename Meant>
Fault fault_in(const char* kind_of_call, Meant meant) {
  return is_the_rank() && is_meant(meant) ? fault_of(kind_of_call) : Fault::none;
}

size_t shortened(size_t bytes) {
  return bytes > 1 ? bytes / 2 : bytes;
}

// The function of this name that would have been called.
template <typename Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

const char* class_of_open(int flags) {
  return (flags & O_ACCMODE) == O_RDONLY ? "read" : "write";
}

__attribute__((destructor)) void write_count() {
  if (!is_the_rank() || !*variable("FAULT_COUNT")) return;
  if (FILE* file = std::fopen(variable("FAULT_COUNT"), "w")) {
    std::fprintf(file, "%ld", num_calls.load());
    std::fclose(file);
  }
}

}  // namespace

extern "C" {

#define FAULT_OPEN(name)                                                       \
  int name(const char* path, int flags, ...) {                                 \
    va_list arguments;                                                         \
    va_start(arguments, flags);                                                \
    const mode_t mode = flags & O_CREAT ? va_arg(arguments, mode_t) : 0;       \
    va_end(arguments);                                                         \
    if (fault_in(class_of_open(flags), path) == Fault::error) return -1;       \
    static auto* const real = next<int(const char*, int, ...)>(#name);         \
    return real(path, flags, mode);                                            \
  }
FAULT_OPEN(open)
FAULT_OPEN(open64)

#define FAULT_TRANSFER(name, kind_of_call, pointer, parameters, arguments)     \
  ssize_t name(int file, pointer data, size_t bytes parameters) {              \
    const Fault fault = fault_in(kind_of_call, file);                          \
    if (fault == Fault::error) return -1;                                      \
    if (fault == Fault::half) bytes = shortened(bytes);                        \
    static auto* const real = next<decltype(name)>(#name);                     \
    return real(file, data, bytes arguments);                                  \
  }
#define COMMA ,
FAULT_TRANSFER(read, "read", void*, , )
FAULT_TRANSFER(pread, "read", void*, COMMA off_t offset, COMMA offset)
FAULT_TRANSFER(pread64, "read", void*, COMMA off64_t offset, COMMA offset)
FAULT_TRANSFER(write, "write", const void*, , )
FAULT_TRANSFER(pwrite, "write", const void*, COMMA off_t offset, COMMA offset)
FAULT_TRANSFER(pwrite64, "write", const void*, COMMA off64_t offset, COMMA offset)

int fsync(int file) {
  if (fault_in("write", file) == Fault::error) return -1;
  static auto* const real = next<decltype(fsync)>("fsync");
  return real(file);
}

int ftruncate(int file, off_t length) noexcept {
  if (fault_in("write", file) == Fault::error) return -1;
  static auto* const real = next<decltype(ftruncate)>("ftruncate");
  return real(file, length);
}

int mkdir(const char* path, mode_t mode) noexcept {
  if (fault_in("write", path) == Fault::error) return -1;
  static auto* const real = next<decltype(mkdir)>("mkdir");
  return real(path, mode);
}

int rename(const char* from, const char* to) noexcept {
  if (fault_in("write", to) == Fault::error) return -1;
  static auto* const real = next<decltype(rename)>("rename");
  return real(from, to);
}

int renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) noexcept {
  if (fault_in("write", to) == Fault::error) return -1;
  static auto* const real = next<decltype(renameat2)>("renameat2");
  return real(from_folder, from, to_folder, to, flags);
}

}  // extern "C"
