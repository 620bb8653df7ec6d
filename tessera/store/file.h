// Files of the store: opened, written and synced, with errors that a user can act on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// An open file that closes itself. Only one thread at a time may use it.
//
// Reading retries errors that may be temporary (EINTR, EAGAIN, EIO, too many open files and similar). The pauses of one
// call take less than a second in total. If the handle of a file on a network file system is no longer valid (ESTALE),
// the file is opened again.
class File {
 public:
  // Throws InputError if the file is missing or is not a regular file. Throws other errors as throw_read_error() does.
  static File open_to_read(const std::filesystem::path& path);
  // The same, but returns nullopt if the file does not exist.
  static std::optional<File> open_if_there(const std::filesystem::path& path);
  // Creates a new file for `expected_bytes`. Reserves the space immediately if the file system supports it. A full disk
  // is then noticed before anything is written. Throws RunError if the file exists already or cannot be created. If
  // there is not enough space to reserve, removes the new file and throws RunError.
  static File create_new(const std::filesystem::path& path, uint64_t expected_bytes);
  // Opens an existing file of `expected_bytes` for writing only. Several processes may write different bytes of it. The
  // file must already have its final size: otherwise an NFS client may write zeros around its own bytes, over the bytes
  // of other processes. Throws RunError.
  static File open_to_write(const std::filesystem::path& path, uint64_t expected_bytes);

  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  ~File();

  int descriptor() const { return descriptor_; }
  const std::filesystem::path& path() const { return path_; }
  uint64_t size() const;

  // Writes all the bytes or throws RunError (disk full, quota, size limit, failing disk).
  void write_at(const void* data, size_t bytes, uint64_t offset);
  // Sets the size of the file to the `expected_bytes` that it was created or opened with. Throws RunError.
  void resize();
  // Reads all the bytes. Throws InputError: the file is too short. Throws other errors as throw_read_error() does.
  void read_at(void* data, size_t bytes, uint64_t offset) const;
  std::string text() const;  // the complete file
  // Returns when the file's content is on the disk. Throws RunError.
  void sync();

 private:
  File(std::filesystem::path path, int descriptor, uint64_t expected_bytes)
      : path_(std::move(path)), descriptor_(descriptor), expected_bytes_(expected_bytes) {}
  void open_again() const;

  std::filesystem::path path_;
  int descriptor_ = -1;
  uint64_t expected_bytes_ = 0;
};

// Creates a file with this text and returns when it is on the disk. Throws RunError. After an error, no partial file
// stays.
void write_new_file(const std::filesystem::path& path, std::string_view text);
// Creates a folder and its missing parents. Throws RunError.
void create_folders(const std::filesystem::path& folder);
// The names of a folder's entries, unordered. Empty if the folder does not exist. Retries as File does. Throws errors
// as throw_read_error() does.
std::vector<std::string> names_in_folder(const std::filesystem::path& folder);
// Whether a path is a folder. False if nothing exists there. Retries and throws as names_in_folder() does.
bool is_folder(const std::filesystem::path& path);
// Returns when changes of a folder's entries (new, renamed, removed) are on the disk. Throws RunError.
void sync_folder(const std::filesystem::path& folder);

// Throws RunError for a failed operation on a file that is being written. `error` is errno's value. If the file does
// not fit, the message names `needed_bytes`.
[[noreturn]] void throw_write_error(const std::filesystem::path& path, int error, uint64_t needed_bytes);
// Throws the error of a failed operation on a file that is being read. `error` is errno's value. InputError: a wrong
// path or a missing permission. OutOfMemoryError: no memory. RunError: a failure of the disk or the file server, or too
// many open files. A RunError does not mean that the file's content is wrong.
[[noreturn]] void throw_read_error(const std::filesystem::path& path, int error);

// Whether `name` can be the name of an entry in a folder: not empty, no separator (/ or \) or NUL, neither "." nor
// "..".
bool is_base_name(std::string_view name);
// Whether `name` can be the name of a file in a folder or in a subfolder of it: "a.txt" or "b/a.txt".
bool is_inner_name(std::string_view name);

}  // namespace tessera
