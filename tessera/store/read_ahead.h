// Reads files from the disk in advance, while other work runs.
#pragma once

#include <filesystem>
#include <thread>
#include <vector>

namespace tessera {

// A thread asks the operating system to load the files into the page cache, one after the other. The thread ends after
// the last file, or when this object is destroyed. If a file cannot be loaded, the thread reports no error and
// continues. A later read of this file reports the error.
class ReadAhead {
 public:
  ReadAhead() = default;
  explicit ReadAhead(std::vector<std::filesystem::path> files);

 private:
  std::jthread thread_;
};

}  // namespace tessera
