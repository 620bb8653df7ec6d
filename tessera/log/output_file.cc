#include "tessera/log/output_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/option_names.h"
#include "tessera/base/read_file.h"
#include "tessera/base/uninterrupted.h"

namespace tessera {
namespace {

std::string remedy_of(int cause) {
  switch (cause) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return "Free some space on the disk";
    case EACCES:
    case EPERM:
    case EROFS:
      return "Choose an " + option("output_dir") + " that you may write to";
    case ENOENT:
    case ENOTDIR:
      return "Create the folder first";
    default:
      return "";
  }
}

}  // namespace

OutputFile::OutputFile(std::string path, int mode)
    : path_(std::move(path)),
      descriptor_(uninterrupted([&] { return ::open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | mode, 0666); })) {
  if (descriptor_ < 0) fail("open");
  struct stat status {};
  if (::fstat(descriptor_, &status) != 0) {
    const int cause = errno;
    ::close(std::exchange(descriptor_, -1));  // the destructor does not run if the constructor throws
    errno = cause;
    fail("open");
  }
  size_bytes_ = status.st_size;
}

OutputFile::~OutputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      size_bytes_(std::exchange(other.size_bytes_, 0)) {}

OutputFile& OutputFile::operator=(OutputFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(size_bytes_, other.size_bytes_);
  return *this;
}

bool OutputFile::is_at(const std::string& path) const {
  struct stat mine {
  }, named{};
  return ::fstat(descriptor_, &mine) == 0 && ::stat(path.c_str(), &named) == 0 && mine.st_dev == named.st_dev &&
         mine.st_ino == named.st_ino;
}

std::string OutputFile::content() const {
  return read_file(fmt::format("/proc/self/fd/{}", descriptor_), {}).substr(0, static_cast<size_t>(size_bytes_));
}

void OutputFile::append(std::string_view text) {
  int64_t written_bytes = 0;
  while (written_bytes < static_cast<int64_t>(text.size())) {
    const std::string_view rest = text.substr(static_cast<size_t>(written_bytes));
    const ssize_t count = ::pwrite(descriptor_, rest.data(), rest.size(), size_bytes_ + written_bytes);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      const int cause = count == 0 ? ENOSPC : errno;
      // Removes a partial write. If ftruncate() fails, the file ends with this partial write.
      [[maybe_unused]] const int taken_back = ::ftruncate(descriptor_, size_bytes_);
      errno = cause;
      fail("write");
    }
    written_bytes += count;
  }
  size_bytes_ += written_bytes;
}

void OutputFile::truncate(int64_t size_bytes) {
  TESSERA_ASSERT(size_bytes >= 0 && size_bytes <= size_bytes_);
  if (uninterrupted([&] { return ::ftruncate(descriptor_, size_bytes); }) != 0) fail("truncate");
  size_bytes_ = size_bytes;
}

void OutputFile::sync() {
  if (uninterrupted([&] { return ::fsync(descriptor_); }) != 0) fail("sync");
}

void OutputFile::fail(const char* doing) const {
  const int cause = errno;
  throw RunError(path_, fmt::format("cannot {} the file: {}", doing, std::strerror(cause)), remedy_of(cause));
}

}  // namespace tessera
