#include "tessera/store/read_ahead.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace tessera {

// Linux brings no more at a call than it reads ahead of itself, by default.
static constexpr off_t kPieceBytes = off_t{128} << 10;

ReadAhead::ReadAhead(std::vector<std::filesystem::path> files)
    : thread_([files = std::move(files)](const std::stop_token& stop) {
        for (const auto& file : files) {
          const int descriptor = open(file.c_str(), O_RDONLY | O_CLOEXEC);
          if (descriptor < 0) continue;
          struct stat about {};
          if (fstat(descriptor, &about) != 0 || !S_ISREG(about.st_mode)) about.st_size = 0;
          for (off_t at = 0; at < about.st_size && !stop.stop_requested(); at += kPieceBytes) {
            posix_fadvise(descriptor, at, kPieceBytes, POSIX_FADV_WILLNEED);
          }
          close(descriptor);
        }
      }) {}

}  // namespace tessera
