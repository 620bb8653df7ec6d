#include "tessera/store/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/read_file.h"
#include "tessera/base/uninterrupted.h"

namespace tessera {

namespace {

bool is_out_of_room(int error) {
  return error == ENOSPC || error == EDQUOT || error == EFBIG;
}

// The pauses before each retry of a failed call. A server that restarts, a file that another node replaces, or too many
// open files for a moment must not end a run that takes days.
class Patience {
 public:
  // Whether to retry after this errno. Before it returns true, it waits, except after EINTR.
  bool again(int error) {
    if (error == EINTR) return true;
    if (!may_pass(error) || num_pauses_ == std::size(kPausesMs)) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(kPausesMs[num_pauses_++]));
    return true;
  }

 private:
  static constexpr int kPausesMs[] = {10, 40, 160, 640};
  static bool may_pass(int error) {
    for (const int known : {EAGAIN, EIO, ESTALE, EMFILE, ENFILE, ENOMEM, ETIMEDOUT, EREMOTEIO}) {
      if (error == known) return true;
    }
    return false;
  }
  size_t num_pauses_ = 0;
};

bool is_missing(int error) {
  return error == ENOENT || error == ENOTDIR;
}

// Returns the descriptor, or -1 with errno set.
int open_patiently(const std::filesystem::path& path, int flags) {
  for (Patience patience;;) {
    const int descriptor = open(path.c_str(), flags | O_CLOEXEC);
    if (descriptor >= 0 || !patience.again(errno)) return descriptor;
  }
}

// The names in a folder. Returns nullopt, with errno set, if the folder cannot be read.
std::optional<std::vector<std::string>> listed(const std::filesystem::path& folder) {
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(opendir(folder.c_str()), closedir);
  if (!stream) return std::nullopt;
  std::vector<std::string> names;
  for (;;) {
    errno = 0;
    const dirent* entry = readdir(stream.get());
    if (!entry && errno != 0) return std::nullopt;
    if (!entry) return names;
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
}

}  // namespace

void throw_read_error(const std::filesystem::path& path, int error) {
  const std::string what = std::string("cannot read: ") + std::strerror(error);
  if (error == ENOMEM) throw OutOfMemoryError(path, what, "Free some memory, and start the same command again");
  if (is_wrong_path(error)) {
    throw InputError(path, what, "Check the path and its permissions");
  }
  if (error == EMFILE) throw RunError(path, what, "Raise the limit on open files (ulimit -n)");
  throw RunError(path, what, "Check the disk or the file server, and start the same command again");
}

void throw_write_error(const std::filesystem::path& path, int error, uint64_t needed_bytes) {
  const std::string reason = std::strerror(error);
  if (error == EFBIG) {
    throw RunError(path, fmt::format("cannot write {} bytes: {}", needed_bytes, reason),
                   "Raise the limit on file sizes (ulimit -f) or choose another file system");
  }
  if (is_out_of_room(error)) {
    std::string what = fmt::format("cannot write {} bytes: {}", needed_bytes, reason);
    struct statvfs disk;
    if (statvfs(path.parent_path().c_str(), &disk) == 0) {
      what += fmt::format("; {} bytes are free", static_cast<uint64_t>(disk.f_bavail) * disk.f_frsize);
    }
    throw RunError(path, what, "Free some space there, keep fewer checkpoints or choose another output folder");
  }
  const bool forbidden = error == EACCES || error == EPERM || error == EROFS;
  throw RunError(path, "cannot write: " + reason,
                 forbidden ? "Choose an output folder that you may write to" : "Check the path and the disk");
}

std::optional<File> File::open_if_there(const std::filesystem::path& path) {
  const int descriptor = open_patiently(path, O_RDONLY | O_NONBLOCK);  // a pipe must not wait for a writer
  if (descriptor < 0 && is_missing(errno)) return std::nullopt;
  if (descriptor < 0 && errno == ENXIO) throw InputError(path, fault_of_kind(S_IFSOCK), "Check the path");
  if (descriptor < 0) throw_read_error(path, errno);
  File file(path, descriptor, 0);
  struct stat status;
  if (fstat(descriptor, &status) != 0) throw_read_error(path, errno);
  if (const std::string fault = fault_of_kind(status.st_mode); !fault.empty()) {
    throw InputError(path, fault, "Check the path");
  }
  return file;
}

File File::open_to_read(const std::filesystem::path& path) {
  if (auto file = open_if_there(path)) return std::move(*file);
  throw InputError(path, "cannot open: No such file or directory", "Check the path and its permissions");
}

File File::create_new(const std::filesystem::path& path, uint64_t expected_bytes) {
  const int descriptor = uninterrupted([&] { return open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666); });
  if (descriptor < 0) throw_write_error(path, errno, expected_bytes);
  File file(path, descriptor, expected_bytes);
  // Not every file system can reserve space. Without a reservation, the first write that fails reports the full disk.
  const auto reserve = [&] { return fallocate(descriptor, 0, 0, static_cast<off_t>(expected_bytes)); };
  if (expected_bytes > 0 && uninterrupted(reserve) != 0 && is_out_of_room(errno)) {
    const int error = errno;
    unlink(path.c_str());
    throw_write_error(path, error, expected_bytes);
  }
  return file;
}

File File::open_to_write(const std::filesystem::path& path, uint64_t expected_bytes) {
  const int descriptor = uninterrupted([&] { return open(path.c_str(), O_WRONLY | O_CLOEXEC); });
  if (descriptor < 0) throw_write_error(path, errno, expected_bytes);
  return {path, descriptor, expected_bytes};
}

File::File(File&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      expected_bytes_(other.expected_bytes_) {}

File& File::operator=(File&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(expected_bytes_, other.expected_bytes_);
  return *this;
}

File::~File() {
  if (descriptor_ >= 0) close(descriptor_);
}

uint64_t File::size() const {
  struct stat status;
  for (Patience patience; fstat(descriptor_, &status) != 0;) {
    const int error = errno;
    if (!patience.again(error)) throw_read_error(path_, error);
    if (error == ESTALE) open_again();
  }
  return static_cast<uint64_t>(status.st_size);
}

// Opens the file again and keeps the number of its descriptor. Used if the handle of a file on a network file system is
// no longer valid.
void File::open_again() const {
  const int descriptor = open_patiently(path_, O_RDONLY);
  if (descriptor < 0) throw_read_error(path_, errno);
  dup3(descriptor, descriptor_, O_CLOEXEC);
  close(descriptor);
}

void File::write_at(const void* data, size_t bytes, uint64_t offset) {
  const auto* next = static_cast<const std::byte*>(data);
  while (bytes > 0) {
    const ssize_t written = pwrite(descriptor_, next, bytes, static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) throw_write_error(path_, written < 0 ? errno : ENOSPC, expected_bytes_);
    // Only a hint: the system starts to write these bytes to the disk while the next bytes are prepared. sync() waits
    // until they are on the disk.
    sync_file_range(descriptor_, static_cast<off_t>(offset), written, SYNC_FILE_RANGE_WRITE);
    next += written;
    bytes -= static_cast<size_t>(written);
    offset += static_cast<uint64_t>(written);
  }
}

void File::resize() {
  const auto resize = [&] { return ftruncate(descriptor_, static_cast<off_t>(expected_bytes_)); };
  if (uninterrupted(resize) != 0) throw_write_error(path_, errno, expected_bytes_);
}

void File::read_at(void* data, size_t bytes, uint64_t offset) const {
  auto* next = static_cast<std::byte*>(data);
  for (Patience patience; bytes > 0;) {
    const ssize_t got = pread(descriptor_, next, bytes, static_cast<off_t>(offset));
    if (got < 0) {
      const int error = errno;
      if (!patience.again(error)) throw_read_error(path_, error);
      if (error == ESTALE) open_again();
      continue;
    }
    if (got == 0) throw InputError(path_, fmt::format("ends at byte {}, too early", offset), "Copy the file again");
    next += got;
    bytes -= static_cast<size_t>(got);
    offset += static_cast<uint64_t>(got);
  }
}

std::string File::text() const {
  std::string text(size(), '\0');
  read_at(text.data(), text.size(), 0);
  return text;
}

void File::sync() {
  if (uninterrupted([&] { return fsync(descriptor_); }) != 0) throw_write_error(path_, errno, expected_bytes_);
}

void write_new_file(const std::filesystem::path& path, std::string_view text) {
  File file = File::create_new(path, text.size());
  try {
    file.write_at(text.data(), text.size(), 0);
    file.sync();
  } catch (...) {
    unlink(path.c_str());
    throw;
  }
}

void create_folders(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw_write_error(folder, error.value(), 0);
}

std::vector<std::string> names_in_folder(const std::filesystem::path& folder) {
  for (Patience patience;;) {
    if (auto names = listed(folder)) return std::move(*names);
    const int error = errno;
    if (is_missing(error)) return {};
    if (!patience.again(error)) throw_read_error(folder, error);
  }
}

bool is_folder(const std::filesystem::path& path) {
  struct stat status;
  for (Patience patience; stat(path.c_str(), &status) != 0;) {
    const int error = errno;
    if (is_missing(error)) return false;
    if (!patience.again(error)) throw_read_error(path, error);
  }
  return S_ISDIR(status.st_mode);
}

void sync_folder(const std::filesystem::path& folder) {
  const int descriptor = open_patiently(folder, O_RDONLY | O_DIRECTORY);
  if (descriptor < 0) throw_write_error(folder, errno, 0);
  const int error = uninterrupted([&] { return fsync(descriptor); }) == 0 ? 0 : errno;
  close(descriptor);
  // Some network file systems sync folders on their own and reject this call.
  if (error != 0 && error != EINVAL && error != EOPNOTSUPP) throw_write_error(folder, error, 0);
}

bool is_base_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." && name.find_first_of(std::string_view("/\\\0", 3)) == name.npos;
}

bool is_inner_name(std::string_view name) {
  const size_t slash = name.find('/');
  return is_base_name(name.substr(0, slash)) && (slash == name.npos || is_base_name(name.substr(slash + 1)));
}

}  // namespace tessera
