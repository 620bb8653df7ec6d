// Files and folders that appear whole or not at all, also when the process is killed or the machine stops in between.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/store/process.h"

namespace tessera {

// A folder that is filled under a temporary name beside its target, "<target>.tmp-<host>-<pid>-<start time>", and takes
// the target's name at commit(). All files lie in the folder itself.
class AtomicFolder {
 public:
  // Makes the temporary folder, and the target's parents. An existing target will be replaced only if it is an earlier
  // version of what is written: a folder of plain files among which is one of the names in `markers` ("config.json"),
  // or an empty one. UsageError: the target is something else. RunError: not writable.
  AtomicFolder(const std::filesystem::path& target, const std::vector<std::string>& markers);
  // Removes the temporary folder if it has not been committed.
  ~AtomicFolder();
  AtomicFolder(const AtomicFolder&) = delete;
  AtomicFolder& operator=(const AtomicFolder&) = delete;

  // Where the files lie until commit(); other processes may write some of them.
  const std::filesystem::path& temporary() const { return temporary_; }
  // Where to write the file `name` until commit().
  std::filesystem::path path(std::string_view name) const;
  // Writes a small file. RunError.
  void write_text(std::string_view name, std::string_view text) const;
  // Brings all files to the disk and gives the folder its name; an earlier version is removed. RunError.
  void commit();

 private:
  std::filesystem::path target_, temporary_;
  bool committed_ = false;
};

// Replaces or makes one small file: readers see the old or the new text. RunError.
void write_file_atomically(const std::filesystem::path& path, std::string_view text);

// Removes what processes of this host that are dead by now left in `parent` by the two above, and puts back a folder
// that was being replaced. Call it while no other process works on the same folder. What another host left stays,
// unless it was the process `gone`: nobody can see from here whether others live. RunError.
void remove_stale_temporaries(const std::filesystem::path& parent,
                              const std::optional<ProcessIdentity>& gone = std::nullopt);

// `path`, or the first of "<path>-2", "<path>-3", ... that does not exist.
std::filesystem::path free_name(const std::filesystem::path& path);
// Gives a folder or a file another name on the same file system; the new name is on the disk on return. RunError.
void rename_folder(const std::filesystem::path& from, const std::filesystem::path& to);

// Removes a folder under its own name in one step (it is renamed first), so that no half of it is ever seen. RunError.
void remove_folder_atomically(const std::filesystem::path& folder);

// Gives `source` the name of the existing folder `target` by moving the latter to an ".old-" name first, which
// remove_stale_temporaries() undoes if the process dies in between. commit() needs it where the file system cannot
// exchange two names in one step. Returns where the old folder lies. RunError.
std::filesystem::path replace_by_moving_aside(const std::filesystem::path& source, const std::filesystem::path& target);

}  // namespace tessera
