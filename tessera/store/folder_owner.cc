#include "tessera/store/folder_owner.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>
#include <random>

#include "tessera/base/error.h"
#include "tessera/base/read_file.h"
#include "tessera/base/uninterrupted.h"
#include "tessera/store/file.h"

namespace tessera {

namespace fs = std::filesystem;

namespace {

// A process writes its owner file immediately after it has created the file. If the text is still incomplete after
// kIncompleteAfterS, the process is considered gone.
constexpr double kIncompleteAfterS = 30;
constexpr double kNsPerS = 1e9;

std::string this_boot() {
  try {
    const std::string text = read_file("/proc/sys/kernel/random/boot_id", {});
    return text.substr(0, text.find('\n'));
  } catch (const Error&) {
    return "";
  }
}

std::string this_pid_namespace() {
  std::error_code ignored;
  return fs::read_symlink("/proc/self/ns/pid", ignored).string();
}

int64_t modified_ns(const struct stat& status) {
  return static_cast<int64_t>(status.st_mtim.tv_sec) * 1'000'000'000 + status.st_mtim.tv_nsec;
}

}  // namespace

FolderOwner FolderOwner::self(double stale_after_s) {
  return {ProcessIdentity::self(), this_boot(), this_pid_namespace(), stale_after_s};
}

std::string FolderOwner::to_text() const {
  std::random_device source;
  const nlohmann::ordered_json json{{"host", process.host},
                                    {"process", process.pid},
                                    {"start_time", process.start_time},
                                    {"boot_id", boot_id},
                                    {"pid_namespace", pid_namespace},
                                    {"stale_after_s", stale_after_s},
                                    {"token", fmt::format("{:08x}{:08x}", source(), source())}};
  return json.dump() + "\n";
}

std::optional<FolderOwner> FolderOwner::parse(const std::string& text) {
  try {
    const auto json = nlohmann::json::parse(text);
    FolderOwner owner{
        {json.at("host").get<std::string>(), json.at("process").get<int>(), json.at("start_time").get<uint64_t>()},
        json.at("boot_id").get<std::string>(),
        json.at("pid_namespace").get<std::string>(),
        json.at("stale_after_s").get<double>()};
    if (owner.process.pid <= 0 || !(owner.stale_after_s > 0)) return std::nullopt;
    return owner;
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

bool FolderOwner::is_comparable_here() const {
  return process.is_on_this_host() && boot_id == this_boot() && pid_namespace == this_pid_namespace();
}

std::string FolderOwner::shown() const {
  return fmt::format("process {} on {}", process.pid, printable(process.host));
}

std::optional<OwnerFile> read_owner_file(const fs::path& path) {
  const auto file = File::open_if_there(path);
  if (!file) return std::nullopt;
  struct stat status;
  if (fstat(file->descriptor(), &status) != 0) throw_read_error(path, errno);
  constexpr off_t kLongest = 4096;
  OwnerFile result;
  result.heartbeat_ns = modified_ns(status);
  result.text.resize(static_cast<size_t>(std::min(status.st_size, kLongest)));
  // Reads only what is available, and does not wait for the rest: the owner may still be writing.
  const ssize_t got = pread(file->descriptor(), result.text.data(), result.text.size(), 0);
  result.text.resize(static_cast<size_t>(std::max<ssize_t>(got, 0)));
  result.owner = FolderOwner::parse(result.text);
  return result;
}

int64_t file_system_now_ns(const fs::path& path) {
  const fs::path probe = fmt::format("{}-{}.tmp-{}", path.string(), gettid(), ProcessIdentity::self().to_string());
  const int descriptor =
      uninterrupted([&] { return open(probe.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666); });
  if (descriptor < 0) throw_write_error(probe, errno, 0);
  struct stat status;
  const bool known = futimens(descriptor, nullptr) == 0 && fstat(descriptor, &status) == 0;
  const int error = errno;
  close(descriptor);
  unlink(probe.c_str());
  if (!known) throw_write_error(probe, error, 0);
  return modified_ns(status);
}

OwnerWatch::Verdict OwnerWatch::look(const OwnerFile& file, const fs::path& path) {
  age_s_ = 0;
  if (file.owner && file.owner->is_comparable_here()) {
    return file.owner->process.is_alive_here() ? Verdict::alive : Verdict::gone;
  }
  const auto now = std::chrono::steady_clock::now();
  const bool is_new = file.text != text_ || since_ == std::chrono::steady_clock::time_point();
  if (!is_new && file.owner && file.heartbeat_ns != heartbeat_ns_) return Verdict::alive;
  if (is_new) {
    text_ = file.text;
    heartbeat_ns_ = file.heartbeat_ns;
    since_ = now;
  }
  age_s_ = static_cast<double>(file_system_now_ns(path) - file.heartbeat_ns) / kNsPerS;
  const double limit_s = file.owner ? file.owner->stale_after_s : kIncompleteAfterS;
  const double watched_s = std::chrono::duration<double>(now - since_).count();
  const double needed_s = file.owner ? 1.5 * limit_s / kHeartbeatsUntilStale : 0;
  return age_s_ > limit_s && watched_s >= needed_s ? Verdict::gone : Verdict::unknown;
}

}  // namespace tessera
