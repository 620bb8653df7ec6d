#include "tessera/base/read_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tessera/base/error.h"
#include "tessera/base/uninterrupted.h"

namespace tessera {

namespace {

struct Descriptor {
  int number;
  ~Descriptor() {
    if (number >= 0) close(number);
  }
};

}  // namespace

std::string fault_of_kind(mode_t mode) {
  if (S_ISREG(mode)) return "";
  if (S_ISDIR(mode)) return "is a folder, not a file";
  if (S_ISFIFO(mode)) return "is a pipe, not a regular file. Save its content to a file first";
  if (S_ISSOCK(mode)) return "is a socket, not a regular file";
  if (S_ISCHR(mode) || S_ISBLK(mode)) return "is a device, not a regular file";
  return "is not a regular file";
}

std::string read_file(const std::filesystem::path& path, const ReadOptions& options) {
  const auto refuse = [&](const std::string& what) { throw InputError(path.string(), what, options.remedy); };
  const auto refuse_call = [&](int error) { refuse(std::string("cannot be read: ") + std::strerror(error)); };
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) {
    if (errno == ENOENT || errno == ENOTDIR) refuse("no such file");
    refuse_call(errno);
  }
  const bool is_pipe = S_ISFIFO(status.st_mode) && options.pipes;
  if (const std::string fault = fault_of_kind(status.st_mode); !is_pipe && !fault.empty()) refuse(fault);
  // O_NONBLOCK: if a pipe has replaced the file since stat(), open() must not wait for a writer.
  const int flags = O_RDONLY | O_CLOEXEC | (is_pipe ? 0 : O_NONBLOCK);
  const Descriptor file{uninterrupted([&] { return open(path.c_str(), flags); })};
  if (file.number < 0) refuse_call(errno);
  // One byte more than the file has: it shows the end of the file without another allocation. The size is 0 for pipes
  // and for files of /proc.
  const auto known = static_cast<uint64_t>(status.st_size);
  std::string text(known > 0 ? std::min(known, options.longest_bytes) + 1 : 1 << 16, '\0');
  size_t size = 0;
  for (;;) {
    if (size == text.size()) text.resize(2 * size);
    const ssize_t got = uninterrupted([&] { return read(file.number, text.data() + size, text.size() - size); });
    if (got < 0) refuse_call(errno);
    if (got == 0) break;
    size += static_cast<size_t>(got);
    if (size > options.longest_bytes) {
      refuse(fmt::format("has more than {} bytes, the limit for this file", options.longest_bytes));
    }
  }
  text.resize(size);
  return text;
}

}  // namespace tessera
