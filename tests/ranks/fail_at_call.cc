// Preloaded into a run (LD_PRELOAD), fails calls on files whose path contains FAIL_PATH with the error FAIL_ERRNO, in
// the rank FAIL_RANK (empty: in any process): FAIL_COUNT calls from the FAIL_CALL-th on, counted from 1 over the
// functions that FAIL_FUNCTIONS names ("open pread fstat stat opendir readdir"). FAIL_FUNCTIONS "flock" fails every
// flock().
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

const char* variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

bool is_the_rank() {
  const char* rank = variable("FAIL_RANK");
  return !*rank || !std::strcmp(rank, variable("OMPI_COMM_WORLD_RANK"));
}

bool is_chosen(const char* function) {
  return (std::string(" ") + variable("FAIL_FUNCTIONS") + " ").find(std::string(" ") + function + " ") !=
         std::string::npos;
}

std::atomic<long> num_calls{0};

// Whether this call fails; errno is set.
bool fails(const char* function, const char* path) {
  if (!is_chosen(function) || !is_the_rank() || !std::strstr(path, variable("FAIL_PATH"))) return false;
  const long call = ++num_calls, first = std::atol(variable("FAIL_CALL")), count = std::atol(variable("FAIL_COUNT"));
  if (call < first || call >= first + count) return false;
  errno = std::atoi(variable("FAIL_ERRNO"));
  return true;
}

std::string path_of(int descriptor) {
  char name[64], path[4096];
  std::snprintf(name, sizeof name, "/proc/self/fd/%d", descriptor);
  const ssize_t bytes = readlink(name, path, sizeof path - 1);
  return bytes > 0 ? std::string(path, static_cast<size_t>(bytes)) : "";
}

// The function of this name that would have been called.
template <typename Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

int open_or_fail(const char* name, const char* path, int flags, mode_t mode) {
  if (fails("open", path)) return -1;
  return next<int(const char*, int, ...)>(name)(path, flags, mode);
}

mode_t mode_among(int flags, va_list arguments) {
  return flags & (O_CREAT | __O_TMPFILE) ? va_arg(arguments, mode_t) : 0;
}

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_among(flags, arguments);
  va_end(arguments);
  return open_or_fail("open", path, flags, mode);
}

int open64(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_among(flags, arguments);
  va_end(arguments);
  return open_or_fail("open64", path, flags, mode);
}

ssize_t pread(int file, void* data, size_t bytes, off_t offset) {
  if (fails("pread", path_of(file).c_str())) return -1;
  return next<decltype(pread)>("pread")(file, data, bytes, offset);
}

ssize_t pread64(int file, void* data, size_t bytes, off64_t offset) {
  if (fails("pread", path_of(file).c_str())) return -1;
  return next<decltype(pread64)>("pread64")(file, data, bytes, offset);
}

int fstat(int file, struct stat* status) noexcept {
  if (fails("fstat", path_of(file).c_str())) return -1;
  return next<decltype(fstat)>("fstat")(file, status);
}

int stat(const char* path, struct stat* status) noexcept {
  if (fails("stat", path)) return -1;
  return next<decltype(stat)>("stat")(path, status);
}

DIR* opendir(const char* path) {
  if (fails("opendir", path)) return nullptr;
  return next<decltype(opendir)>("opendir")(path);
}

dirent* readdir(DIR* stream) {
  if (fails("readdir", path_of(dirfd(stream)).c_str())) return nullptr;
  return next<decltype(readdir)>("readdir")(stream);
}

dirent64* readdir64(DIR* stream) {
  if (fails("readdir", path_of(dirfd(stream)).c_str())) return nullptr;
  return next<decltype(readdir64)>("readdir64")(stream);
}

int flock(int file, int operation) noexcept {
  if (is_chosen("flock")) {
    errno = std::atoi(variable("FAIL_ERRNO"));
    return -1;
  }
  return next<decltype(flock)>("flock")(file, operation);
}

}  // extern "C"
