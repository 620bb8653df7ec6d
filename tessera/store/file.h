// Files of the store: opened, written and synced with errors that a user can act on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// An open file that closes itself. One thread at a time uses it.
//
// Reading retries what may pass (EINTR, EAGAIN, EIO, too many open files and the like) after pauses of less than a
// second together; a file of a network file system that lost its handle (ESTALE) is opened again.
class File {
 public:
  // InputError: missing, a folder, or not readable. Otherwise as throw_read_error().
  static File open_to_read(const std::filesystem::path& path);
  // The same; nothing where there is no such file.
  static std::optional<File> open_if_there(const std::filesystem::path& path);
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
  // Reads all the bytes. InputError: the file ends before. Otherwise as throw_read_error().
  void read_at(void* data, size_t bytes, uint64_t offset) const;
  std::string text() const;  // the complete file
  // Returns once the file's content is on the disk. RunError.
  void sync();

 private:
  File(std::filesystem::path path, int descriptor, uint64_t expected_bytes)
      : path_(std::move(path)), descriptor_(descriptor), expected_bytes_(expected_bytes) {}
  void open_again() const;

  std::filesystem::path path_;
  int descriptor_ = -1;
  uint64_t expected_bytes_ = 0;
};

// A new file with this text, on the disk when it returns. RunError; nothing half-written stays.
void write_new_file(const std::filesystem::path& path, std::string_view text);
// Makes a folder and its parents where they are missing. RunError.
void create_folders(const std::filesystem::path& folder);
// The names of a folder's entries, in no order; none where there is no such folder. Retries as File does; errors as
// throw_read_error().
std::vector<std::string> names_in_folder(const std::filesystem::path& folder);
// The same of the question whether a path is a folder.
bool is_folder(const std::filesystem::path& path);
// Returns once a folder's entries (new, renamed, removed) are on the disk. RunError.
void sync_folder(const std::filesystem::path& folder);

// RunError for a failed operation on a file that is being written; `error` is errno's value.
[[noreturn]] void throw_write_error(const std::filesystem::path& path, int error, uint64_t needed_bytes);
// The error of a failed operation on a file that is being read; `error` is errno's value. InputError: the user gave the
// wrong path or lacks a permission. OutOfMemoryError. RunError: the disk, the file server or the process failed, which
// says nothing about the file's content.
[[noreturn]] void throw_read_error(const std::filesystem::path& path, int error);

// Whether `name` names something inside a folder itself: not empty, no separator, neither "." nor "..".
bool is_base_name(std::string_view name);

}  // namespace tessera
