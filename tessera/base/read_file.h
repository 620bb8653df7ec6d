// Reads a complete file into memory.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <string>

namespace tessera {

struct ReadOptions {
  std::string remedy = "";           // what to do; each error ends with it
  uint64_t longest_bytes = 1 << 30;  // the largest accepted size
  // Whether to accept pipes, such as a shell's <(...). Opening a pipe waits for its writer.
  bool pipes = false;
};

// Returns the content of a regular file, or of a pipe if `pipes` is true. Throws InputError if the file is missing,
// unreadable, too long or of another kind (for example a device, which may have no end).
std::string read_file(const std::filesystem::path& path, const ReadOptions& options);

// What is wrong with a file of this kind, if a regular file is needed: "is a folder, not a file". Empty for a regular
// file. `mode`: st_mode of stat(2).
std::string fault_of_kind(mode_t mode);

}  // namespace tessera
