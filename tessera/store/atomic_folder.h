// Files and folders that appear complete or not at all, even if the process is killed or the machine stops.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/store/process.h"

namespace tessera {

// A folder that is filled under a temporary name next to its target, "<target>.tmp-<host>-<pid>-<start time>". commit()
// gives it the target's name. It has no subfolders.
class AtomicFolder {
 public:
  // Creates the temporary folder and the target's parents. An existing target is replaced only if it is empty or an
  // earlier version. An earlier version contains only regular files, and one of them has a name in `markers`, such as
  // "config.json". Throws UsageError: the target is something else. Throws RunError: the folder is not writable.
  AtomicFolder(const std::filesystem::path& target, const std::vector<std::string>& markers);
  // Removes the temporary folder if it has not been committed.
  ~AtomicFolder();
  AtomicFolder(const AtomicFolder&) = delete;
  AtomicFolder& operator=(const AtomicFolder&) = delete;

  // Where the files are until commit(). Other processes may write some of them.
  const std::filesystem::path& temporary() const { return temporary_; }
  // The path for writing the file `name` until commit().
  std::filesystem::path path(std::string_view name) const;
  // Writes a small file. Throws RunError.
  void write_text(std::string_view name, std::string_view text) const;
  // Syncs all files to the disk and gives the folder the target's name. If the target existed, removes the old target.
  // Throws RunError.
  void commit();

 private:
  std::filesystem::path target_, temporary_;
  bool committed_ = false;
};

// Creates or replaces one small file. Readers see the old or the new text. Throws RunError.
void write_file_atomically(const std::filesystem::path& path, std::string_view text);

// Removes temporary files and folders of AtomicFolder and write_file_atomically() in `parent` if their process was on
// this host and is dead. If a process died while it replaced a folder, restores the old folder. Call it while no other
// process works on the same folder. Temporary files that processes on other hosts created stay, because this host
// cannot see whether these processes are alive. The exception is the process `gone`: its files are removed even if it
// was on another host. Throws RunError.
void remove_stale_temporaries(const std::filesystem::path& parent,
                              const std::optional<ProcessIdentity>& gone = std::nullopt);

// `path`, or the first of "<path>-2", "<path>-3", ... that does not exist.
std::filesystem::path free_name(const std::filesystem::path& path);
// Renames a folder or a file on the same file system. The new name is on the disk on return. Throws RunError.
void rename_folder(const std::filesystem::path& from, const std::filesystem::path& to);

// Removes a folder. Renames it first, so nobody sees a half-removed folder under its name. Throws RunError.
void remove_folder_atomically(const std::filesystem::path& folder);

// Gives `source` the name of the existing folder `target`. First moves `target` to an ".old-" name;
// remove_stale_temporaries() undoes this if the process dies in between. AtomicFolder::commit() needs this function if
// the file system cannot exchange two names atomically. Returns the new path of the old folder. Throws RunError.
std::filesystem::path replace_by_moving_aside(const std::filesystem::path& source, const std::filesystem::path& target);

}  // namespace tessera
