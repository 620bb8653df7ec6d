#include "tessera/store/output_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <string>
#include <system_error>

#include "tessera/base/error.h"
#include "tessera/store/file.h"
#include "tessera/store/process.h"

namespace tessera {

namespace {

std::optional<ProcessIdentity> read_holder(int descriptor) {
  char text[512];
  const ssize_t bytes = pread(descriptor, text, sizeof text, 0);
  if (bytes <= 0) return std::nullopt;
  return ProcessIdentity::parse(std::string_view(text, static_cast<size_t>(bytes)));
}

[[noreturn]] void throw_in_use(const std::filesystem::path& folder, const std::optional<ProcessIdentity>& holder) {
  const std::string who = holder ? fmt::format(" (process {} on {})", holder->pid, holder->host)
                                 : std::string(" that is starting or ending");
  throw UsageError(folder, "is in use by another run" + who, "Wait for it, stop it, or choose another output folder");
}

// Whether the open file is still the one of that name: its last holder may have removed it in between.
bool is_file_at(int descriptor, const std::filesystem::path& path) {
  struct stat open_file, named_file;
  return fstat(descriptor, &open_file) == 0 && stat(path.c_str(), &named_file) == 0 &&
         open_file.st_dev == named_file.st_dev && open_file.st_ino == named_file.st_ino;
}

}  // namespace

OutputLock::OutputLock(const std::filesystem::path& folder) : file_(folder / ".tessera-lock") {
  create_folders(folder);
  for (;;) {
    const int descriptor = open(file_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (descriptor < 0) throw_write_error(file_, errno, 0);
    const bool locked = flock(descriptor, LOCK_EX | LOCK_NB) == 0;
    const int reason = errno;
    const auto holder = read_holder(descriptor);
    // On some cluster file systems flock() always succeeds or is not there at all: the name in the file decides then.
    const bool held = (!locked && reason == EWOULDBLOCK) || (holder && holder->is_alive_here());
    const bool current = is_file_at(descriptor, file_);
    if (current && !held) {
      descriptor_ = descriptor;
      break;
    }
    close(descriptor);
    if (current) throw_in_use(folder, holder);
  }
  const std::string self = ProcessIdentity::self().to_string();
  if (ftruncate(descriptor_, 0) != 0 || pwrite(descriptor_, self.data(), self.size(), 0) != ssize_t(self.size())) {
    const int reason = errno;
    close(descriptor_);
    throw_write_error(file_, reason, self.size());
  }
}

OutputLock::~OutputLock() {
  unlink(file_.c_str());  // while it is locked: who has it open already will see that it lost its name
  close(descriptor_);
}

}  // namespace tessera
