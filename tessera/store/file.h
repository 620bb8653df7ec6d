// Files of the store: opened, written and synced with errors that a user can act on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace tessera {

// An open file that closes itself.
class File {
 public:
  // InputError: missing, a folder, or not readable.
  static File open_to_read(const std::filesystem::path& path);
  // A new file that will hold `expected_bytes`; where the file system can, that much room is reserved at once, so that
  // a full disk is met before the work. RunError: exists already, not writable, no room. A file without room is
  // removed.
  static File create_new(const std::filesystem::path& path, uint64_t expected_bytes);

  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  ~File();

  int descriptor() const { return descriptor_; }
  const std::filesystem::path& path() const { return path_; }
  uint64_t size() const;

  // Writes all the bytes or throws RunError (disk full, quota, size limit, failing disk).
  void write_at(const void* data, size_t bytes, uint64_t offset);
  // Reads all the bytes or throws InputError (the file ends before, failing disk).
  void read_at(void* data, size_t bytes, uint64_t offset) const;
  // Returns once the file's content is on the disk. RunError.
  void sync();

 private:
  File(std::filesystem::path path, int descriptor, uint64_t expected_bytes)
      : path_(std::move(path)), descriptor_(descriptor), expected_bytes_(expected_bytes) {}

  std::filesystem::path path_;
  int descriptor_ = -1;
  uint64_t expected_bytes_ = 0;
};

// A new file with this text, on the disk when it returns. RunError; nothing half-written stays.
void write_new_file(const std::filesystem::path& path, std::string_view text);
// Makes a folder and its parents where they are missing. RunError.
void create_folders(const std::filesystem::path& folder);
// Returns once a folder's entries (new, renamed, removed) are on the disk. RunError.
void sync_folder(const std::filesystem::path& folder);

// RunError for a failed operation on a file that is being written; `error` is errno's value.
[[noreturn]] void throw_write_error(const std::filesystem::path& path, int error, uint64_t needed_bytes);

// Whether `name` names something inside a folder itself: not empty, no separator, neither "." nor "..".
bool is_base_name(std::string_view name);

}  // namespace tessera
