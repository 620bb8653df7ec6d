#include "tessera/store/read_ahead.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tessera/base/error.h"
#include "tessera/base/start_thread.h"

namespace tessera {

// The number of bytes that each call of posix_fadvise() asks for. Linux may load only its read-ahead size per
// call, which is 128 KiB by default.
constexpr off_t kPieceBytes = off_t{128} << 10;

namespace {

void bring(const std::filesystem::path& file, const std::stop_token& stop) {
  const int descriptor =
      open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // without O_NONBLOCK, a pipe would wait for a writer
  if (descriptor < 0) return;
  struct stat about {};
  const bool has_size = fstat(descriptor, &about) == 0 && S_ISREG(about.st_mode);
  for (off_t at = 0; has_size && at < about.st_size && !stop.stop_requested(); at += kPieceBytes) {
    posix_fadvise(descriptor, at, kPieceBytes, POSIX_FADV_WILLNEED);
  }
  close(descriptor);
}

}  // namespace

ReadAhead::ReadAhead(std::vector<std::filesystem::path> files) {
  try {
    thread_ = start_thread("reading ahead", [files = std::move(files)](const std::stop_token& stop) {
      for (const auto& file : files) bring(file, stop);
    });
  } catch (const RunError&) {  // no thread is available: the files are not read in advance
  }
}

}  // namespace tessera
