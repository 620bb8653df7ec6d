// Lets ranks write directly to the launcher's standard output and error. The launcher passes the descriptors of these
// streams to its ranks through a socket. Otherwise, the output of the ranks would go through the pipes of mpirun. These
// pipes mix and delay lines, and are not terminals.
#pragma once

#include <string>

namespace tessera {

// The launcher's side of the socket.
class StreamSocket {
 public:
  StreamSocket();  // throws RunError
  ~StreamSocket();
  StreamSocket(const StreamSocket&) = delete;
  StreamSocket& operator=(const StreamSocket&) = delete;

  const std::string& name() const { return name_; }
  int descriptor() const { return descriptor_; }  // to poll
  void serve();                                   // answers all waiting requests; does not block

 private:
  std::string name_;
  int descriptor_ = -1;
};

// A rank calls this to replace its standard error with the launcher's. If the rank `prints`, the call also replaces
// standard output. If the launcher's streams cannot be received, the rank keeps mpirun's pipes.
void take_launchers_streams(const std::string& socket_name, bool prints);

}  // namespace tessera
