// Reads complete external files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace tessera {

struct ReadOptions {
  std::string remedy = "";           // for the error: what to do if the file is missing or not a file
  uint64_t longest_bytes = 1 << 30;  // the largest accepted size
  bool pipes = false;                // accepts pipes, such as a shell's <(...); opening one waits for its writer
};

// The content of a file. InputError if it is missing, a folder, a device (which may have no end), unreadable or too
// long.
std::string read_file(const std::filesystem::path& path, const ReadOptions& options);

}  // namespace tessera
