#include "tessera/comm/tcp/socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

namespace tessera {
namespace {

constexpr std::string_view kMapped = "::ffff:";  // begins an IPv4 address that is written as an IPv6 address

struct AnyAddress {
  sockaddr_storage data{};
  socklen_t length = sizeof data;

  sockaddr* get() { return reinterpret_cast<sockaddr*>(&data); }
  std::string host() {
    char text[NI_MAXHOST] = {};
    if (getnameinfo(get(), length, text, sizeof text, nullptr, 0, NI_NUMERICHOST) != 0) return "";
    const std::string host = text;
    return host.starts_with(kMapped) ? host.substr(kMapped.size()) : host;
  }
};

void set(const Socket& socket, int level, int option, int value) {
  setsockopt(socket.descriptor(), level, option, &value, sizeof value);
}

// Sends small messages immediately. Notices after about half a minute that the machine of the peer is gone, if all data
// has been acknowledged before (see limit_silence()).
void prepare_connection(const Socket& socket) {
  set(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(socket, IPPROTO_TCP, TCP_KEEPIDLE, 15);
  set(socket, IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set(socket, IPPROTO_TCP, TCP_KEEPCNT, 3);
}

}  // namespace

void limit_silence(const Socket& socket, int time_s) {
  set(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, 1000 * time_s);
}

bool is_closed(const Socket& socket) {
  char byte = 0;
  const ssize_t count = recv(socket.descriptor(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR);
}

namespace {

// Returns whether the events have happened before the deadline.
bool wait_for_events(const Socket& socket, short events, Deadline end) {
  for (;;) {
    pollfd event{socket.descriptor(), events, 0};
    const int count = poll(&event, 1, milliseconds_until(end));
    if (count > 0) return true;
    if (count < 0 && errno != EINTR) return false;
    if (count == 0 && std::chrono::steady_clock::now() >= end) return false;
  }
}

Socket new_socket(int family) {
  return Socket(socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

// Connects to one address. On failure, returns an empty socket and sets errno.
Socket connect_to_address(const addrinfo& address, Deadline end) {
  Socket socket = new_socket(address.ai_family);
  if (!socket) return {};
  prepare_connection(socket);
  if (connect(socket.descriptor(), address.ai_addr, address.ai_addrlen) == 0) return socket;
  if (errno != EINPROGRESS) return {};
  if (!wait_for_events(socket, POLLOUT, end)) {
    errno = ETIMEDOUT;
    return {};
  }
  int error = 0;
  socklen_t length = sizeof error;
  getsockopt(socket.descriptor(), SOL_SOCKET, SO_ERROR, &error, &length);
  errno = error;
  return error == 0 ? std::move(socket) : Socket();
}

struct AddressesDeleter {
  void operator()(addrinfo* addresses) const { freeaddrinfo(addresses); }
};
using Addresses = std::unique_ptr<addrinfo, AddressesDeleter>;

// On failure, returns null and puts the reason into `error`.
Addresses addresses_of(const char* host, int port, int flags, std::string& error) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int result = getaddrinfo(host, std::to_string(port).c_str(), &hints, &found);
  if (result == 0) return Addresses(found);
  error = result == EAI_SYSTEM ? std::strerror(errno) : gai_strerror(result);
  return nullptr;
}

Socket listen_at_address(const sockaddr* address, socklen_t length) {
  Socket socket = new_socket(address->sa_family);
  if (!socket) return {};
  set(socket, SOL_SOCKET, SO_REUSEADDR, 1);  // the port of an ended run is usable at once
  if (address->sa_family == AF_INET6) set(socket, IPPROTO_IPV6, IPV6_V6ONLY, 0);
  if (bind(socket.descriptor(), address, length) != 0 || listen(socket.descriptor(), SOMAXCONN) != 0) return {};
  return socket;
}

}  // namespace

Deadline deadline_in(double seconds) {
  return std::chrono::steady_clock::now() +
         std::chrono::duration_cast<Deadline::duration>(std::chrono::duration<double>(seconds));
}

int milliseconds_until(Deadline end) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - std::chrono::steady_clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 3'600'000));
}

Socket& Socket::operator=(Socket&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

Socket::~Socket() {
  if (descriptor_ >= 0) {
    const int error = errno;
    close(descriptor_);
    errno = error;
  }
}

std::string address_of_peer(const Socket& socket) {
  AnyAddress address;
  return getpeername(socket.descriptor(), address.get(), &address.length) == 0 ? address.host() : "";
}

std::string own_address(const Socket& socket) {
  AnyAddress address;
  return getsockname(socket.descriptor(), address.get(), &address.length) == 0 ? address.host() : "";
}

int own_port(const Socket& socket) {
  AnyAddress address;
  if (getsockname(socket.descriptor(), address.get(), &address.length) != 0) return 0;
  return ntohs(address.data.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(address.data).sin6_port
                                                  : reinterpret_cast<sockaddr_in&>(address.data).sin_port);
}

bool is_loopback(const std::string& address) {
  return address == "::1" || address.starts_with("127.");
}

Socket listen_at(const std::string& address, int port) {
  if (!address.empty()) {
    std::string error;
    const Addresses found = addresses_of(address.c_str(), port, AI_NUMERICHOST, error);
    if (!found) errno = EADDRNOTAVAIL;
    return found ? listen_at_address(found->ai_addr, found->ai_addrlen) : Socket();
  }
  sockaddr_in6 all{};  // the addresses of IPv6 and of IPv4
  all.sin6_family = AF_INET6;
  all.sin6_port = htons(static_cast<uint16_t>(port));
  all.sin6_addr = in6addr_any;
  if (Socket socket = listen_at_address(reinterpret_cast<sockaddr*>(&all), sizeof all); socket || errno == EADDRINUSE) {
    return socket;
  }
  sockaddr_in old{};  // the system has no IPv6
  old.sin_family = AF_INET;
  old.sin_port = all.sin6_port;
  return listen_at_address(reinterpret_cast<sockaddr*>(&old), sizeof old);
}

Socket connect_to(const std::string& host, int port, Deadline end, std::string& error) {
  const Addresses found = addresses_of(host.c_str(), port, 0, error);
  for (const addrinfo* address = found.get(); address; address = address->ai_next) {
    Socket socket = connect_to_address(*address, end);
    // If nobody listens at a port that the system also gives to outgoing connections, the system may connect the socket
    // to itself.
    const bool is_own = socket && own_port(socket) == port && own_address(socket) == address_of_peer(socket);
    if (socket && !is_own) return socket;
    error = std::strerror(is_own ? ECONNREFUSED : errno);
  }
  return {};
}

Socket accept_from(const Socket& listener) {
  Socket socket(accept4(listener.descriptor(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (socket) prepare_connection(socket);
  return socket;
}

bool send_all(const Socket& socket, const void* data, size_t bytes, Deadline end) {
  const auto* next = static_cast<const std::byte*>(data);
  while (bytes > 0) {
    const ssize_t count = send(socket.descriptor(), next, bytes, MSG_NOSIGNAL);
    if (count > 0) {
      next += count;
      bytes -= static_cast<size_t>(count);
    } else if (count < 0 && errno != EAGAIN && errno != EINTR) {
      return false;
    } else if (!wait_for_events(socket, POLLOUT, end)) {
      return false;
    }
  }
  return true;
}

bool receive_all(const Socket& socket, void* data, size_t bytes, Deadline end) {
  auto* next = static_cast<std::byte*>(data);
  while (bytes > 0) {
    const ssize_t count = recv(socket.descriptor(), next, bytes, 0);
    if (count > 0) {
      next += count;
      bytes -= static_cast<size_t>(count);
    } else if (count == 0 || (errno != EAGAIN && errno != EINTR)) {
      return false;
    } else if (!wait_for_events(socket, POLLIN, end)) {
      return false;
    }
  }
  return true;
}

}  // namespace tessera
