#include "tessera/base/read_file.h"

#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "tessera/base/error.h"

namespace tessera {

std::string read_file(const std::filesystem::path& path, const ReadOptions& options) {
  namespace fs = std::filesystem;
  const auto refuse = [&](const std::string& what) { throw InputError(path.string(), what, options.remedy); };
  std::error_code error;
  const fs::file_type type = fs::status(path, error).type();
  if (type == fs::file_type::not_found) refuse("no such file");
  if (type == fs::file_type::none) refuse("cannot be read: " + error.message());
  if (type == fs::file_type::directory) refuse("is a folder, not a file");
  if (type != fs::file_type::regular && !(type == fs::file_type::fifo && options.pipes)) {
    refuse("is not a regular file");
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) refuse(std::string("cannot be read: ") + std::strerror(errno));
  std::string text;
  std::array<char, 1 << 16> part;
  while (file.read(part.data(), part.size()) || file.gcount() > 0) {
    text.append(part.data(), static_cast<size_t>(file.gcount()));
    if (text.size() > options.longest_bytes) {
      refuse(fmt::format("has more than {} bytes, the limit for this file", options.longest_bytes));
    }
  }
  if (file.bad()) refuse(std::string("cannot be read: ") + std::strerror(errno));
  return text;
}

}  // namespace tessera
