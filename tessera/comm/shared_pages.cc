#include "tessera/comm/shared_pages.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <random>

namespace tessera {

std::string SharedPages::unique_name() {
  std::random_device random;
  return fmt::format("/tessera-{}-{:08x}{:08x}", getpid(), random(), random());
}

SharedPages::SharedPages(int descriptor, int64_t bytes) : bytes_(static_cast<size_t>(bytes)) {
  void* data = descriptor < 0 ? MAP_FAILED : mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (data != MAP_FAILED) data_ = static_cast<std::byte*>(data);
  if (descriptor >= 0) close(descriptor);
}

SharedPages::~SharedPages() {
  if (data_) munmap(data_, bytes_);
}

SharedPages SharedPages::create(const std::string& name, int64_t bytes) {
  const int descriptor = shm_open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  // Room is taken now: a full /dev/shm is an error here rather than a fault later.
  if (descriptor >= 0 && posix_fallocate(descriptor, 0, bytes) != 0) {
    close(descriptor);
    shm_unlink(name.c_str());
    return {-1, bytes};
  }
  return {descriptor, bytes};
}

SharedPages SharedPages::open(const std::string& name, int64_t bytes) {
  int descriptor = shm_open(name.c_str(), O_RDWR | O_CLOEXEC, 0600);
  struct stat info {};
  if (descriptor >= 0 && (fstat(descriptor, &info) != 0 || info.st_size < bytes)) {  // no pages to map
    close(descriptor);
    descriptor = -1;
  }
  return {descriptor, bytes};
}

void SharedPages::remove(const std::string& name) {
  shm_unlink(name.c_str());
}

}  // namespace tessera
