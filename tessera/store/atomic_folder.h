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
// gives it the target's name. All files are in the folder itself.
class AtomicFolder {
 public:
  // Creates the temporary folder and the target's parents. An existing target is replaced only if it is empty or an
  // earlier version. An earlier version contains only regular files, and one of them has a name in `markers`
  // ("config.json"). UsageError: the target is something else. RunError: not writable.
  AtomicFolder(const std::filesystem::path& target, const std::vector<std::string>& markers);
  // Removes the temporary folder if it has not been committed.
  ~AtomicFolder();
  AtomicFolder(const AtomicFolder&) = delete;
  AtomicFolder& operator=(const AtomicFolder&) = delete;

  // Where the files are until commit(). Other processes may write some of them.
  const std::filesystem::path& temporary() const { return temporary_; }
  // The path for writing the file `name` until commit().
  std::filesystem::path path(std::string_view name) const;
  // Writes a small file. RunError.
  void write_text(std::string_view name, std::string_view text) const;
  // Syncs all files to the disk and gives the folder its name. Removes an earlier version. RunError.
  void commit();

 private:
  std::filesystem::path target_, temporary_;
  bool committed_ = false;
};

// Creates or replaces one small file. Readers see the old or the new text. RunError.
void write_file_atomically(const std::filesystem::path& path, std::string_view text);

// Removes what dead processes of this host left in `parent` through the two functions above. Restores a folder that was
// being replaced. Call it while no other process works on the same folder. Files from another host stay, because this
// host cannot see whether their process is alive. Exception: files of the process `gone`. RunError.
void remove_stale_temporaries(const std::filesystem::path& parent,
                              const std::optional<ProcessIdentity>& gone = std::nullopt);

// `path`, or the first of "<path>-2", "<path>-3", ... that does not exist.
std::filesystem::path free_name(const std::filesystem::path& path);
// Renames a folder or a file on the same file system. The new name is on the disk on return. RunError.
void rename_folder(const std::filesystem::path& from, const std::filesystem::path& to);

// Removes a folder. It is renamed first, so nobody sees a half-removed folder under its name. RunError.
void remove_folder_atomically(const std::filesystem::path& folder);

// Gives `source` the name of the existing folder `target`. Moves the latter to an ".old-" name first;
// remove_stale_temporaries() undoes this if the process dies in between. commit() needs this function if the file
// system cannot exchange two names atomically. Returns the path of the old folder. RunError.
std::filesystem::path replace_by_moving_aside(const std::filesystem::path& source, const std::filesystem::path& target);

}  // namespace tessera
