// Files on their way from the disk while other work is done.
#pragma once

#include <filesystem>
#include <thread>
#include <vector>

namespace tessera {

// Has the system bring files into its page cache, in a thread, one after the other until all are there or this is
// destroyed. A hint alone, which throws nothing: what is wrong with a file is told by whoever reads it.
class ReadAhead {
 public:
  ReadAhead() = default;
  explicit ReadAhead(std::vector<std::filesystem::path> files);

 private:
  std::jthread thread_;
};

}  // namespace tessera
