// Pointers of Git LFS: small texts in the place of large files, if a repository was cloned without Git LFS.
#pragma once

#include <string>
#include <string_view>

namespace tessera {

// Whether a file that starts with `start` is a pointer.
bool is_lfs_pointer(std::string_view start);
// Throws InputError: `path` is a pointer, with the command that fetches the file.
[[noreturn]] void throw_lfs_pointer(const std::string& path);

}  // namespace tessera
