#include "tessera/base/git_lfs.h"

#include <fmt/format.h>

#include <filesystem>

#include "tessera/base/error.h"

namespace tessera {

bool is_lfs_pointer(std::string_view start) {
  return start.starts_with("version https://git-lfs.github.com/spec/");
}

void throw_lfs_pointer(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  throw InputError(
      path, "is a Git LFS pointer, not the file itself",
      fmt::format("Install Git LFS, and run \"git lfs pull\" in {}", folder.empty() ? "this folder" : folder));
}

}  // namespace tessera
