// One run at a time in an output folder.
#pragma once

#include <filesystem>

namespace tessera {

// Holds an output folder from construction to destruction, or to the death of the process, through a lock on the file
// ".tessera-lock" in it, which names its holder.
class OutputLock {
 public:
  // Makes the folder if it is missing. UsageError: another live run holds it (its process number and host are named).
  // RunError: the folder cannot be made or written.
  explicit OutputLock(const std::filesystem::path& folder);
  ~OutputLock();
  OutputLock(const OutputLock&) = delete;
  OutputLock& operator=(const OutputLock&) = delete;

 private:
  std::filesystem::path file_;
  int descriptor_ = -1;
};

}  // namespace tessera
