// How a run takes a folder from an owner that is gone. Several runs may notice at the same time that the owner is gone:
//   1. Each run tries to create a file, the marker. Its name is the same for all these runs, because it contains a
//      checksum of the old owner file. Therefore only one run succeeds. The marker contains the owner file of this run.
//   2. The run that created the marker reads the old owner file again. If the file has changed, the run removes the
//      marker and gives up this attempt. Only the run that created the marker may replace the owner file.
//   3. This run renames the marker over the old owner file.
// If step 1 fails because of a marker whose creator is gone, the run that could not create its own marker
// removes this marker and starts again.
#include "tessera/store/output_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "tessera/base/error.h"
#include "tessera/base/option_names.h"
#include "tessera/base/start_thread.h"
#include "tessera/base/uninterrupted.h"
#include "tessera/store/checksum.h"
#include "tessera/store/file.h"

namespace tessera {

namespace fs = std::filesystem;

namespace {

[[noreturn]] void throw_in_use(const fs::path& folder, const FolderOwner& owner) {
  throw UsageError(folder, fmt::format("{} ({})", OutputLock::kInUse, owner.shown()),
                   "Wait until that run ends, stop it, or choose another output folder");
}

bool is_same_file(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

int open_to_write(const fs::path& path, int flags) {
  return uninterrupted([&] { return open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | flags, 0666); });
}

void write_text(int descriptor, const fs::path& path, const std::string& text) {
  size_t written = 0;
  while (written < text.size()) {
    const ssize_t bytes =
        uninterrupted([&] { return pwrite(descriptor, text.data() + written, text.size() - written, off_t(written)); });
    if (bytes == 0) errno = ENOSPC;
    if (bytes <= 0) break;
    written += static_cast<size_t>(bytes);
  }
  if (written == text.size() && uninterrupted([&] { return fsync(descriptor); }) == 0) return;
  const int reason = errno;
  close(descriptor);
  unlink(path.c_str());
  throw_write_error(path, reason, text.size());
}

}  // namespace

OutputLock::OutputLock(const fs::path& folder, double stale_after_s, double incomplete_after_s)
    : folder_(folder),
      file_(folder / kFileName),
      stale_after_s_(stale_after_s),
      watch_(std::min(incomplete_after_s, stale_after_s)),
      marker_watch_(std::min(incomplete_after_s, stale_after_s)) {
  create_folders(folder);
}

OutputLock::~OutputLock() {
  if (descriptor_ < 0) return;
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  ended_.notify_all();
  heartbeat_.join();
  remove_own_file();
}

// Another run may have replaced the owner file, and the folder may have been renamed.
void OutputLock::remove_own_file() {
  struct stat mine, named;
  if (fstat(descriptor_, &mine) == 0 && fstatat(folder_descriptor_, kFileName, &named, 0) == 0 &&
      is_same_file(mine, named)) {
    unlinkat(folder_descriptor_, kFileName, 0);
  }
  close(descriptor_);
  close(folder_descriptor_);
  descriptor_ = folder_descriptor_ = -1;
}

bool OutputLock::try_take() {
  text_ = FolderOwner::self(stale_after_s_).to_text();
  for (;;) {
    const auto found = read_owner_file(file_);
    if (!found) {
      if (take_free()) return true;
      std::error_code ignored;
      if (fs::is_symlink(file_, ignored) && !fs::exists(file_, ignored)) {
        throw InputError(file_, "is a symbolic link to a file that does not exist", "Remove the link");
      }
      continue;  // another run was faster
    }
    switch (watch_.look(*found)) {
      case OwnerWatch::Verdict::alive:
        throw_in_use(folder_, *found->owner);
      case OwnerWatch::Verdict::gone:
        if (take_over(*found)) return true;
        if (remove_dead_marker(*found)) continue;
        waiting_for_ = fmt::format("{} is being taken over by another run", folder_.string());
        pause_s_ = 0.02;
        return false;
      case OwnerWatch::Verdict::unknown:
        waiting_for_ = found->owner
                           ? fmt::format(
                                 "{} belongs to {}. Waiting for a new heartbeat of that run. Without one for {:g} s, "
                                 "this run takes the folder",
                                 folder_.string(), found->owner->shown(), found->owner->stale_after_s)
                           : fmt::format(
                                 "{} has an incomplete owner file: {} {}. Waiting for its owner. Without a change for "
                                 "{:g} s, this run takes the folder",
                                 folder_.string(), kFileName, found->fault, watch_.limit_s(*found));
        pause_s_ = std::min(0.5, watch_.limit_s(*found) / kHeartbeatsUntilStale / 4);
        return false;
    }
  }
}

void OutputLock::pause() const {
  std::this_thread::sleep_for(std::chrono::duration<double>(pause_s_));
}

// Creates the file `path` with this run's owner text and returns its descriptor, or -1 if a file with this name exists.
// The text is first written to a draft file. A hard link then gives the draft the name `path`, so the file appears
// complete. If the file system has no hard links, the file is created under its name and then written.
int OutputLock::make_exclusively(const fs::path& path) const {
  const fs::path draft =
      fmt::format("{}-{}-{}.tmp-{}", file_.string(), checksum_text(checksum_of(text_.data(), text_.size())), gettid(),
                  ProcessIdentity::self().to_string());
  int descriptor = open_to_write(draft, O_TRUNC);
  if (descriptor < 0) throw_write_error(path, errno, 0);
  write_text(descriptor, draft, text_);
  const bool is_linked = uninterrupted([&] { return link(draft.c_str(), path.c_str()); }) == 0;
  const int reason = errno;
  unlink(draft.c_str());
  if (is_linked) return descriptor;
  close(descriptor);
  if (reason == EEXIST) return -1;
  descriptor = open_to_write(path, O_EXCL);
  if (descriptor < 0 && errno == EEXIST) return -1;
  if (descriptor < 0) throw_write_error(path, errno, 0);
  write_text(descriptor, path, text_);
  return descriptor;
}

// Takes a folder that nobody owns. False: another run was faster.
bool OutputLock::take_free() {
  const int descriptor = make_exclusively(file_);
  if (descriptor >= 0) begin(descriptor);
  return descriptor >= 0;
}

fs::path OutputLock::marker_of(const OwnerFile& seen) const {
  const std::string number = checksum_text(checksum_of(seen.text.data(), seen.text.size()));
  return folder_ / fmt::format(".tessera-takeover-{}-lock", number);
}

bool OutputLock::take_over(const OwnerFile& seen) {
  const fs::path marker = marker_of(seen);
  const int descriptor = make_exclusively(marker);
  if (descriptor < 0) return false;
  const auto give_up = [&] {
    close(descriptor);
    unlink(marker.c_str());
  };
  try {
    const auto found = read_owner_file(file_);
    if (!found || found->text != seen.text) {
      give_up();
      return false;
    }
    if (uninterrupted([&] { return rename(marker.c_str(), file_.c_str()); }) != 0) throw_write_error(file_, errno, 0);
  } catch (...) {
    give_up();
    throw;
  }
  if (seen.owner) predecessor_ = seen.owner->process;
  begin(descriptor);
  return true;
}

bool OutputLock::remove_dead_marker(const OwnerFile& seen) {
  const fs::path marker = marker_of(seen);
  const auto found = read_owner_file(marker);
  if (!found) return false;
  return marker_watch_.look(*found) == OwnerWatch::Verdict::gone && unlink(marker.c_str()) == 0;
}

void OutputLock::begin(int descriptor) {
  descriptor_ = descriptor;
  folder_descriptor_ = uninterrupted([&] { return open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); });
  try {
    heartbeat_ = start_thread("the heartbeat of the output folder", [this] { renew(); });
  } catch (...) {
    remove_own_file();
    throw;
  }
}

void OutputLock::renew() {
  const std::chrono::duration<double> interval(stale_after_s_ / kHeartbeatsUntilStale);
  std::unique_lock lock(mutex_);
  while (!ended_.wait_for(lock, interval, [&] { return ends_; })) {
    lock.unlock();
    futimens(descriptor_, nullptr);  // if it fails, the next heartbeat may succeed
    lock.lock();
  }
}

// Whether `path` is the folder that this run has taken. On a file system whose numbers of files change, the owner file
// identifies the folder.
bool OutputLock::is_taken_folder(const fs::path& path) const {
  struct stat taken, named;
  if (stat(path.c_str(), &named) != 0 || !S_ISDIR(named.st_mode)) return false;
  if (fstat(folder_descriptor_, &taken) == 0 && is_same_file(taken, named)) return true;
  const auto found = read_owner_file(path / kFileName);
  return found && found->text == text_;
}

std::optional<fs::path> OutputLock::locate() const {
  if (is_taken_folder(folder_)) return folder_;
  std::error_code error;
  fs::path now = fs::read_symlink(fmt::format("/proc/self/fd/{}", folder_descriptor_), error);
  if (error || !is_taken_folder(now)) return std::nullopt;
  if (folder_.is_absolute()) return now;
  const fs::path shorter = now.lexically_proximate(fs::current_path(error));
  return error || shorter.native().starts_with("..") ? now : shorter;
}

void OutputLock::check_held() const {
  const auto folder = locate();
  const auto found = folder ? read_owner_file(*folder / kFileName) : std::nullopt;
  if (!found || !found->owner || found->text == text_) return;
  throw RunError(
      folder_,
      fmt::format("was taken over by another run ({}), because this run sent no heartbeat for {:.0f} "
                  "s",
                  found->owner->shown(), stale_after_s_),
      fmt::format("Give a longer {} if nodes or file servers can stop for so long", option("owner_timeout")));
}

}  // namespace tessera
