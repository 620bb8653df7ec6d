// Writes to a standard stream. Its reader may go away, its terminal may be lost, its disk may be full.
#pragma once

#include <string_view>

namespace tessera {

class StreamWriter {
 public:
  explicit StreamWriter(int descriptor) : descriptor_(descriptor) {}

  // Writes all of the text, and waits where the stream cannot take it now. Returns 0 or errno of the first failure.
  // After a failure nothing is written any more, and every call returns the same.
  int write(std::string_view text);

 private:
  int descriptor_;
  int failure_ = 0;
};

}  // namespace tessera
