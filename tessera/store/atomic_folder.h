// Files and folders that appear complete or not at all, even if the process is killed or the machine stops.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "tessera/store/file.h"
#include "tessera/store/process.h"

namespace tessera {

// Looks at a folder that is not empty. Returns why it must stay, such as `contains "notes.md", which …`, or an empty
// text if Tessera wrote everything in it (replaceable.h).
using WhyKept = std::function<std::string(const std::filesystem::path&)>;

// Throws UsageError if something exists at `target` and must stay: a file, or a folder that is not empty and that
// `why_kept` gives a reason for.
void check_replaceable(const std::filesystem::path& target, const WhyKept& why_kept);

// A folder that is filled under a temporary name next to its target: "<target>.tmp-<host>-<pid>-<start time>". commit()
// gives this folder the target's name. The folder may have subfolders of files, but no deeper ones.
class AtomicFolder {
 public:
  // Creates the temporary folder and, with `creates_parents`, the target's parents. See check_replaceable() for an
  // existing target. Throws UsageError if the target must not be replaced, or if its name is not valid. Throws RunError
  // if the folder cannot be created.
  AtomicFolder(const std::filesystem::path& target, const WhyKept& why_kept, bool creates_parents = true);
  // Removes the temporary folder if it has not been committed.
  ~AtomicFolder();
  AtomicFolder(const AtomicFolder&) = delete;
  AtomicFolder& operator=(const AtomicFolder&) = delete;

  // The temporary folder. It holds the files until commit(). Other processes may write some of these files.
  const std::filesystem::path& temporary() const { return temporary_; }
  // The path of the file `name` in the temporary folder.
  std::filesystem::path path(std::string_view name) const;
  // Writes a small file. `name` may be "subfolder/file". Throws RunError.
  void write_text(std::string_view name, std::string_view text) const;
  // Syncs all files to the disk and gives the folder the target's name. If the target existed, removes the old target.
  // Throws RunError.
  void commit();

 private:
  std::filesystem::path target_, temporary_;
  bool committed_ = false;
};

// A large file that is filled under a temporary name next to its target, as an AtomicFolder is. commit() gives it the
// target's name.
class AtomicFile {
 public:
  // Creates the temporary file with its final size, and the target's parents. Reserves the space if the file system
  // can. Throws RunError.
  AtomicFile(const std::filesystem::path& target, uint64_t bytes);
  // Removes the temporary file if it has not been committed.
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // Several threads may write different bytes at the same time. Throws RunError.
  void write_at(const void* data, size_t bytes, uint64_t offset);
  // Syncs the file to the disk and gives it the target's name. Replaces an existing file. Throws RunError.
  void commit();

 private:
  std::filesystem::path target_;
  File file_;
  bool committed_ = false;
};

// Creates or replaces one small file. Readers see the complete old text or the complete new text. Throws RunError.
void write_file_atomically(const std::filesystem::path& path, std::string_view text);

// Removes temporary files and folders of AtomicFolder and write_file_atomically() in `parent` if the process that
// created them was on this host and is dead. If this process died while it replaced a folder, and nothing has the
// target's name, the old folder gets this name back. Temporary files of processes on other hosts stay, because this
// host cannot see whether these processes are alive. The exception is the process `gone`: its files are removed
// even if it was on another host. Call the function only while no other process works in `parent`. Throws RunError.
void remove_stale_temporaries(const std::filesystem::path& parent,
                              const std::optional<ProcessIdentity>& gone = std::nullopt);

// The first of `path`, "<path>-2", "<path>-3", ... that does not exist.
std::filesystem::path free_name(const std::filesystem::path& path);
// Renames a folder or a file on the same file system. Syncs the new name to the disk. Throws RunError.
void rename_folder(const std::filesystem::path& from, const std::filesystem::path& to);

// Removes a folder. Renames the folder first, so no process sees a half-removed folder under the original name. Throws
// RunError.
void remove_folder_atomically(const std::filesystem::path& folder);

// Gives `source` the name of the existing folder `target`, in two steps. The first step renames `target` to a name with
// ".old-". The second step renames `source`. If the process dies between the two steps, remove_stale_temporaries()
// undoes the first step. AtomicFolder::commit() needs this function if the file system cannot exchange two names
// atomically. Returns the new path of the old folder. Throws RunError.
std::filesystem::path replace_by_moving_aside(const std::filesystem::path& source, const std::filesystem::path& target);

}  // namespace tessera
