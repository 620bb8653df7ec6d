// TCP sockets with time limits. No function blocks longer than its time limit, except while the system searches for the
// address of a name.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tessera {

using Deadline = std::chrono::steady_clock::time_point;
Deadline deadline_in(double seconds);
// The time until the deadline for poll(), in milliseconds: at least 0.
int milliseconds_until(Deadline end);

class Socket {
 public:
  Socket() = default;
  explicit Socket(int descriptor) : descriptor_(descriptor) {}  // takes ownership
  Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Socket& operator=(Socket&& other) noexcept;
  ~Socket();

  int descriptor() const { return descriptor_; }
  explicit operator bool() const { return descriptor_ >= 0; }

 private:
  int descriptor_ = -1;
};

// An address of a machine, as digits: "10.0.0.2" or "fe80::1%eth0". Empty if it is unknown.
std::string address_of_peer(const Socket& socket);
std::string own_address(const Socket& socket);
int own_port(const Socket& socket);
bool is_loopback(const std::string& address);

// Listens at an address of this machine. Without an address, listens at all addresses. Port 0: the system chooses a
// port. On failure, returns an empty socket and sets errno.
Socket listen_at(const std::string& address, int port);
// Connects to a host, which is a name or an address. The result does not block (O_NONBLOCK). On failure returns an
// empty socket, and puts the reason into `error`.
Socket connect_to(const std::string& host, int port, Deadline end, std::string& error);
// Accepts a connection that is waiting. The result does not block. On failure, returns an empty socket and sets errno.
Socket accept_from(const Socket& listener);

// Ends the connection if the peer does not acknowledge data for this time.
void limit_silence(const Socket& socket, int time_s);
// Whether the peer has closed the connection, or it has failed.
bool is_closed(const Socket& socket);

// Return false if not all bytes are sent or received before the deadline, or if the connection fails or ends.
bool send_all(const Socket& socket, const void* data, size_t bytes, Deadline end);
bool receive_all(const Socket& socket, void* data, size_t bytes, Deadline end);

}  // namespace tessera
