#include "tessera/comm/shared_pages.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <random>

namespace tessera {
namespace {

constexpr const char* kNameFormat = "tessera-{}-{}-{:016x}";  // process, descriptor, and a token unique to these pages

// The target of the link /proc/PROCESS/fd/DESCRIPTOR if the descriptor belongs to the pages with this token.
std::string file_of(uint64_t token) {
  return fmt::format("/memfd:tessera-{:016x} (deleted)", token);
}

std::string target_of(const std::string& link) {
  std::array<char, 128> text;
  const ssize_t length = readlink(link.c_str(), text.data(), text.size());
  return length < 0 ? "" : std::string(text.data(), static_cast<size_t>(length));
}

}  // namespace

SharedPages::SharedPages(int descriptor, int64_t bytes) : bytes_(static_cast<size_t>(bytes)) {
  void* data = descriptor < 0 ? MAP_FAILED : mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (data != MAP_FAILED) data_ = static_cast<std::byte*>(data);
}

SharedPages::SharedPages(SharedPages&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      bytes_(other.bytes_),
      name_(std::move(other.name_)),
      descriptor_(std::exchange(other.descriptor_, -1)) {}

SharedPages::~SharedPages() {
  if (data_) munmap(data_, bytes_);
  if (descriptor_ >= 0) close(descriptor_);
}

SharedPages SharedPages::create(int64_t bytes) {
  std::random_device random;
  const uint64_t token = uint64_t{random()} << 32 | random();
  const int descriptor = memfd_create(fmt::format("tessera-{:016x}", token).c_str(), MFD_CLOEXEC);
  if (descriptor < 0) return {-1, bytes};
  // Allocates the memory now. If memory is short, this call fails. Without this call, a later access would end
  // the process.
  SharedPages pages(posix_fallocate(descriptor, 0, bytes) == 0 ? descriptor : -1, bytes);
  pages.descriptor_ = descriptor;
  if (pages) pages.name_ = fmt::format(kNameFormat, getpid(), descriptor, token);
  return pages;
}

SharedPages SharedPages::open(const std::string& name, int64_t bytes) {
  int pid = 0, number = 0;
  unsigned long long token = 0;
  if (std::sscanf(name.c_str(), "tessera-%d-%d-%16llx", &pid, &number, &token) != 3) return {-1, bytes};
  const std::string link = fmt::format("/proc/{}/fd/{}", pid, number);
  // In another namespace, or at a later time, the same process and descriptor numbers may belong to another file.
  if (target_of(link) != file_of(token)) return {-1, bytes};
  const int descriptor = ::open(link.c_str(), O_RDWR | O_CLOEXEC);
  if (descriptor < 0) return {-1, bytes};
  struct stat info {};
  const bool is_whole = fstat(descriptor, &info) == 0 && info.st_size >= bytes;  // a smaller file lacks some pages
  SharedPages pages(is_whole ? descriptor : -1, bytes);
  close(descriptor);
  return pages;
}

}  // namespace tessera
