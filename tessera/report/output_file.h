// A file being written, of the report room alone: every failure becomes a RunError that names the file and the cause.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tessera {

class OutputFile {
 public:
  // mode: what open(2) takes beside O_WRONLY | O_CREAT, such as O_TRUNC.
  OutputFile(std::string path, int mode);
  ~OutputFile();
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;

  const std::string& path() const { return path_; }
  int64_t size_bytes() const { return size_bytes_; }  // after the last write that succeeded

  void append(std::string_view text);  // whole or not at all: a write cut short is taken back
  void truncate(int64_t size_bytes);   // and go on from there; size_bytes <= size_bytes()
  void sync();                         // to the disk, not only to the system

 private:
  [[noreturn]] void fail(const char* doing) const;

  std::string path_;
  int descriptor_;
  int64_t size_bytes_ = 0;
};

}  // namespace tessera
