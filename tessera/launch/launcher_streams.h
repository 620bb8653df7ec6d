// How ranks write where their launcher writes, and not into the pipes of mpirun, which mix and delay lines and are no
// terminal: the launcher hands its standard output and error to its ranks through a socket.
#pragma once

#include <string>

namespace tessera {

// The launcher's end.
class StreamSocket {
 public:
  StreamSocket();  // RunError
  ~StreamSocket();
  StreamSocket(const StreamSocket&) = delete;
  StreamSocket& operator=(const StreamSocket&) = delete;

  const std::string& name() const { return name_; }
  int descriptor() const { return descriptor_; }  // to poll
  void serve();                                   // gives the streams to all that ask for them now

 private:
  std::string name_;
  int descriptor_ = -1;
};

// The rank's end: takes the launcher's standard error, and its standard output if it `prints`. Where that cannot be,
// mpirun's pipes stay.
void take_launchers_streams(const std::string& socket_name, bool prints);

}  // namespace tessera
