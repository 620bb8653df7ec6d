#include "tessera/store/atomic_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <system_error>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/base/uninterrupted.h"
#include "tessera/store/file.h"
#include "tessera/store/process.h"

namespace tessera {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kTemporary = ".tmp-";
constexpr std::string_view kMovedAside = ".old-";

fs::path name_beside(const fs::path& target, std::string_view kind) {
  return target.string() + std::string(kind) + ProcessIdentity::self().to_string();
}

void rename_or_throw(const fs::path& from, const fs::path& to) {
  if (uninterrupted([&] { return rename(from.c_str(), to.c_str()); }) != 0) throw_write_error(to, errno, 0);
}

void remove_or_throw(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) throw RunError(path, "cannot remove: " + error.message(), "Check its permissions");
}

// A name with ".tmp-" or ".old-" contains two facts: the path of the target, and the process that chose the name.
struct Leftover {
  fs::path target;
  ProcessIdentity writer;
};
std::optional<Leftover> parse_leftover(const fs::path& path, std::string_view kind) {
  const std::string name = path.filename().string();
  const size_t at = name.rfind(kind);
  if (at == name.npos || at == 0) return std::nullopt;
  const auto writer = ProcessIdentity::parse(std::string_view(name).substr(at + kind.size()));
  if (!writer) return std::nullopt;
  return Leftover{path.parent_path() / name.substr(0, at), *writer};
}

}  // namespace

void check_replaceable(const fs::path& target, const WhyKept& why_kept) {
  if (!fs::exists(target)) return;
  const bool is_folder = fs::is_directory(target);
  if (is_folder && fs::is_empty(target)) return;
  const std::string why = is_folder ? why_kept(target) : "is not a folder";
  if (why.empty()) return;
  throw UsageError(target, "exists and " + why + ", so it is not replaced",
                   "Choose another name, or move the existing one away");
}

AtomicFolder::AtomicFolder(const fs::path& target, const WhyKept& why_kept, bool creates_parents) {
  std::error_code error;
  // If `target` is a link to a folder, commit() replaces this folder, and the link stays.
  target_ = fs::weakly_canonical(fs::absolute(target), error);
  if (!target_.has_filename()) target_ = target_.parent_path();  // removes a '/' at the end of a new name
  if (error) {
    throw RunError(target, "cannot be resolved to a full path: " + error.message(),
                   "Check the path and the permissions of its folders");
  }
  if (!target_.has_filename()) {
    throw UsageError(target, "has no name at its end",
                     "Give a path that ends with the name of a folder, such as runs/first");
  }
  if (creates_parents) create_folders(target_.parent_path());
  check_replaceable(target_, why_kept);
  const fs::path temporary = name_beside(target_, kTemporary);
  const auto make = [&] { return uninterrupted([&] { return mkdir(temporary.c_str(), 0777); }) == 0; };
  bool is_made = make();
  if (!is_made && errno == EEXIST) {  // this process left it when the parent was renamed during an earlier write
    remove_or_throw(temporary);
    is_made = make();
  }
  if (!is_made) throw_write_error(temporary, errno, 0);
  temporary_ = temporary;
}

AtomicFolder::~AtomicFolder() {
  // Ignores an error, because an exception may be active. remove_stale_temporaries() later removes what is left.
  std::error_code ignored;
  if (!committed_) fs::remove_all(temporary_, ignored);
}

fs::path AtomicFolder::path(std::string_view name) const {
  TESSERA_ASSERT(is_inner_name(name));
  return temporary_ / name;
}

void AtomicFolder::write_text(std::string_view name, std::string_view text) const {
  if (name.find('/') != name.npos) create_folders(path(name).parent_path());
  write_new_file(path(name), text);
}

namespace {

// Syncs all files and folders in a folder, and the folder itself.
void sync_tree(const fs::path& folder) {
  for (const std::string& name : names_in_folder(folder)) {
    fs::is_directory(folder / name) ? sync_tree(folder / name) : File::open_to_read(folder / name).sync();
  }
  sync_folder(folder);
}

}  // namespace

void AtomicFolder::commit() {
  TESSERA_ASSERT(!committed_);
  // Syncs every file, because its writer may not have done so. A second sync of a file costs almost nothing.
  sync_tree(temporary_);
  fs::path old;
  if (!fs::exists(target_)) {
    rename_or_throw(temporary_, target_);
  } else if (uninterrupted([&] {
               return renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, target_.c_str(), RENAME_EXCHANGE);
             }) == 0) {
    old = temporary_;
  } else if (errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP) {
    old = replace_by_moving_aside(temporary_, target_);
  } else {
    throw_write_error(target_, errno, 0);
  }
  committed_ = true;
  sync_folder(target_.parent_path());
  if (!old.empty()) remove_or_throw(old);
}

fs::path replace_by_moving_aside(const fs::path& source, const fs::path& target) {
  fs::path old = name_beside(target, kMovedAside);
  rename_or_throw(target, old);
  if (uninterrupted([&] { return rename(source.c_str(), target.c_str()); }) != 0) {
    const int error = errno;
    rename_or_throw(old, target);
    throw_write_error(target, error, 0);
  }
  return old;
}

namespace {

File create_beside(const fs::path& target, uint64_t bytes) {
  if (target.has_parent_path()) create_folders(target.parent_path());
  return File::create_new(name_beside(target, kTemporary), bytes);
}

fs::path parent_of(const fs::path& file) {
  return file.has_parent_path() ? file.parent_path() : fs::path(".");
}

}  // namespace

AtomicFile::AtomicFile(const fs::path& target, uint64_t bytes) : target_(target), file_(create_beside(target, bytes)) {}

AtomicFile::~AtomicFile() {
  if (!committed_) unlink(file_.path().c_str());
}

void AtomicFile::write_at(const void* data, size_t bytes, uint64_t offset) {
  file_.write_at(data, bytes, offset);
}

void AtomicFile::commit() {
  TESSERA_ASSERT(!committed_);
  file_.resize();  // not all file systems reserve the bytes at the end, which nobody may have written
  file_.sync();
  rename_or_throw(file_.path(), target_);
  committed_ = true;
  sync_folder(parent_of(target_));
}

void write_file_atomically(const fs::path& path, std::string_view text) {
  const fs::path temporary = name_beside(path, kTemporary);
  write_new_file(temporary, text);
  if (uninterrupted([&] { return rename(temporary.c_str(), path.c_str()); }) != 0) {
    const int error = errno;
    unlink(temporary.c_str());
    throw_write_error(path, error, text.size());
  }
  sync_folder(parent_of(path));
}

void remove_stale_temporaries(const fs::path& parent, const std::optional<ProcessIdentity>& gone) {
  const auto is_stale = [&](const std::optional<Leftover>& leftover) {
    if (!leftover) return false;
    return leftover->writer == gone || (leftover->writer.is_on_this_host() && !leftover->writer.is_alive_here());
  };
  std::error_code error;
  std::vector<fs::path> entries;
  for (const auto& entry : fs::directory_iterator(parent, error)) entries.push_back(entry.path());
  for (const auto& path : entries) {
    if (is_stale(parse_leftover(path, kTemporary))) remove_or_throw(path);
  }
  for (const auto& path : entries) {
    const auto aside = parse_leftover(path, kMovedAside);
    if (!is_stale(aside)) continue;
    if (fs::exists(aside->target)) {
      remove_or_throw(path);
    } else {
      rename_or_throw(path, aside->target);
    }
  }
}

fs::path free_name(const fs::path& path) {
  fs::path name = path;
  for (int number = 2; fs::symlink_status(name).type() != fs::file_type::not_found; ++number) {
    name = path.string() + fmt::format("-{}", number);
  }
  return name;
}

void rename_folder(const fs::path& from, const fs::path& to) {
  rename_or_throw(from, to);
  sync_folder(to.parent_path());
}

void remove_folder_atomically(const fs::path& folder) {
  const fs::path temporary = name_beside(folder, kTemporary);
  rename_or_throw(folder, temporary);
  remove_or_throw(temporary);
}

}  // namespace tessera
