// Writes to a standard stream. Handles a closed reader, a lost terminal and a full disk.
#pragma once

#include <string_view>

namespace tessera {

class StreamWriter {
 public:
  explicit StreamWriter(int descriptor) : descriptor_(descriptor) {}

  // Writes the complete text. Waits while the stream cannot take more. Returns 0, or errno of the first failure. After
  // a failure the writer writes nothing more, and every call returns the same value.
  int write(std::string_view text);

 private:
  int descriptor_;
  int failure_ = 0;
};

}  // namespace tessera
