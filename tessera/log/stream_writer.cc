#include "tessera/log/stream_writer.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>

namespace tessera {

int StreamWriter::write(std::string_view text) {
  while (failure_ == 0 && !text.empty()) {
    const ssize_t count = ::write(descriptor_, text.data(), text.size());
    if (count >= 0) {
      text.remove_prefix(static_cast<size_t>(count));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {  // another process made the stream non-blocking
      pollfd event{descriptor_, POLLOUT, 0};
      poll(&event, 1, -1);
    } else if (errno != EINTR) {
      failure_ = errno;
    }
  }
  return failure_;
}

}  // namespace tessera
