// Reads files from the disk in advance, while other work runs.
#pragma once

#include <filesystem>
#include <thread>
#include <vector>

namespace tessera {

// Makes the system load files into its page cache, one after the other, in a thread. Stops when all are loaded or when
// this object is destroyed. Only a hint: it throws nothing. If a file cannot be loaded, a later read reports the error.
class ReadAhead {
 public:
  ReadAhead() = default;
  explicit ReadAhead(std::vector<std::filesystem::path> files);

 private:
  std::jthread thread_;
};

}  // namespace tessera
