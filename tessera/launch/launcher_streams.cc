#include "tessera/launch/launcher_streams.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <random>

#include "tessera/base/error.h"

namespace tessera {
namespace {

struct Address {
  sockaddr_un data{};
  socklen_t length = 0;

  // Puts `name` into the abstract namespace of Unix sockets: in the address, a zero byte precedes the name. The socket
  // then needs no file.
  explicit Address(const std::string& name) {
    data.sun_family = AF_UNIX;
    const size_t count = std::min(name.size(), sizeof data.sun_path - 1);
    std::memcpy(data.sun_path + 1, name.data(), count);
    length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + count);
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&data); }
};

constexpr int kNumStreams = 2;

// A message of one byte, with the descriptors of standard output and standard error as ancillary data.
struct Message {
  char byte = 0;
  iovec part{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(kNumStreams * sizeof(int))] = {};
  msghdr header{};

  Message() {
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof control;
  }
};

}  // namespace

StreamSocket::StreamSocket() {
  std::random_device random;
  name_ = fmt::format("tessera-{}-{:08x}{:08x}", getpid(), random(), random());
  const Address address(name_);
  descriptor_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (descriptor_ < 0 || bind(descriptor_, address.get(), address.length) != 0 || listen(descriptor_, 4096) != 0) {
    const int error = errno;
    if (descriptor_ >= 0) close(descriptor_);
    throw RunError("launcher", fmt::format("cannot create a socket: {}", std::strerror(error)));
  }
}

StreamSocket::~StreamSocket() {
  close(descriptor_);
}

void StreamSocket::serve() {
  for (;;) {
    const int connection = accept4(descriptor_, nullptr, nullptr, SOCK_CLOEXEC);
    if (connection < 0) return;
    ucred peer{};
    socklen_t length = sizeof peer;
    const bool is_known = getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0;
    if (is_known && peer.uid == geteuid()) {
      Message message;
      cmsghdr* control = CMSG_FIRSTHDR(&message.header);
      control->cmsg_level = SOL_SOCKET;
      control->cmsg_type = SCM_RIGHTS;
      control->cmsg_len = CMSG_LEN(kNumStreams * sizeof(int));
      const int streams[kNumStreams] = {STDOUT_FILENO, STDERR_FILENO};
      std::memcpy(CMSG_DATA(control), streams, sizeof streams);
      sendmsg(connection, &message.header, MSG_NOSIGNAL);
    }
    close(connection);
  }
}

void take_launchers_streams(const std::string& socket_name, bool prints) {
  const Address address(socket_name);
  const int connection = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (connection < 0) return;
  Message message;
  int streams[kNumStreams] = {-1, -1};
  if (connect(connection, address.get(), address.length) == 0 &&
      recvmsg(connection, &message.header, MSG_CMSG_CLOEXEC) == 1) {
    const cmsghdr* control = CMSG_FIRSTHDR(&message.header);
    if (control && control->cmsg_type == SCM_RIGHTS && control->cmsg_len == CMSG_LEN(sizeof streams)) {
      std::memcpy(streams, CMSG_DATA(control), sizeof streams);
    }
  }
  close(connection);
  if (streams[0] >= 0 && prints) dup2(streams[0], STDOUT_FILENO);
  if (streams[1] >= 0) dup2(streams[1], STDERR_FILENO);
  for (const int stream : streams) {
    if (stream >= 0) close(stream);
  }
}

}  // namespace tessera
