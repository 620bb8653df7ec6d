// Writes to a standard stream. If the reader has closed the stream, the terminal is lost or the disk is full, write()
// returns the error. SIGPIPE must be ignored (launch/surroundings.h).
#pragma once

#include <string_view>

namespace tessera {

class StreamWriter {
 public:
  explicit StreamWriter(int descriptor) : descriptor_(descriptor) {}

  // Writes the complete text. Waits while a non-blocking stream is full. Returns 0, or errno of the first failure.
  // After a failure, the writer writes nothing more, and every call returns this errno.
  int write(std::string_view text);

 private:
  int descriptor_;
  int failure_ = 0;
};

}  // namespace tessera
