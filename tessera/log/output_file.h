// A file that Tessera appends to: metrics.jsonl, a log, or a file of a tracker. A function that fails throws RunError
// with the file and the cause.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tessera {

class OutputFile {
 public:
  // `mode`: flags for open(2) in addition to O_WRONLY | O_CREAT, such as O_TRUNC. Without O_TRUNC, append() continues
  // an existing file.
  OutputFile(std::string path, int mode);
  ~OutputFile();
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&& other) noexcept;

  const std::string& path() const { return path_; }
  int64_t size_bytes() const { return size_bytes_; }  // does not count a partial write

  // Whether `path` names this file. If it was renamed, path() still returns the earlier path.
  bool is_at(const std::string& path) const;
  // The content, even if the file was removed.
  std::string content() const;
  void append(std::string_view text);  // if this fails, tries to remove what it has written
  void truncate(int64_t size_bytes);   // keeps the first size_bytes bytes; requires size_bytes <= size_bytes()
  void sync();                         // waits until the content is on the disk, not only in the system's cache

 private:
  [[noreturn]] void fail(const char* doing) const;

  std::string path_;
  int descriptor_;
  int64_t size_bytes_ = 0;
};

}  // namespace tessera
