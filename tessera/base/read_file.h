// Files that others wrote, read whole.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace tessera {

struct ReadOptions {
  std::string remedy = "";           // what to do about a file that is missing or something else, for the error
  uint64_t longest_bytes = 1 << 30;  // what such a file has at most
  bool pipes = false;                // whether it may be one, as of a shell's <(...): opening it waits for its writer
};

// The content of a file. InputError: missing, a folder, a device (which may have no end), unreadable, too long.
std::string read_file(const std::filesystem::path& path, const ReadOptions& options);

}  // namespace tessera
