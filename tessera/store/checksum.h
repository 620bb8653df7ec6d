// Checksums of files: XXH3, 64 bits, no seed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace tessera {

// A checksum of bytes that arrive in pieces.
class Checksum {
 public:
  Checksum();
  ~Checksum();
  Checksum(Checksum&&) noexcept;
  Checksum& operator=(Checksum&&) noexcept;

  void update(const void* data, size_t bytes);
  uint64_t value() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

uint64_t checksum_of(const void* data, size_t bytes);
// 16 lower-case hexadecimal digits.
std::string checksum_text(uint64_t checksum);

// Bytes [begin, end) of a file with their checksum. The segments of a file are consecutive and cover it from its first
// to its last byte.
struct FileSegment {
  uint64_t begin = 0, end = 0;
  uint64_t checksum = 0;
};

}  // namespace tessera
