#include "tessera/store/folder_owner.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <random>

#include "tessera/base/error.h"
#include "tessera/base/read_file.h"
#include "tessera/store/file.h"

namespace tessera {

namespace fs = std::filesystem;

namespace {

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
  result.heartbeat_ns = int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec;
  result.text.resize(static_cast<size_t>(std::min(status.st_size, kLongest)));
  // Reads only what is available, and does not wait for the rest: the owner may still be writing.
  const ssize_t got = pread(file->descriptor(), result.text.data(), result.text.size(), 0);
  result.text.resize(static_cast<size_t>(std::max<ssize_t>(got, 0)));
  result.owner = FolderOwner::parse(result.text);
  return result;
}

OwnerWatch::Verdict OwnerWatch::look(const OwnerFile& file) {
  if (file.owner && file.owner->is_comparable_here()) {
    return file.owner->process.is_alive_here() ? Verdict::alive : Verdict::gone;
  }
  const bool is_same = last_look_ && file.text == text_;
  if (is_same && file.owner && file.heartbeat_ns != heartbeat_ns_) return Verdict::alive;
  const auto now = Clock::now();
  // A long pause between two calls counts as one heartbeat interval. If the file server did not answer or this process
  // was stopped, the owner may have been stopped for the same reason, and must get time for its next heartbeat.
  const double pause_s = is_same ? std::chrono::duration<double>(now - *last_look_).count() : 0;
  watched_s_ = is_same ? watched_s_ + std::min(pause_s, limit_s(file) / kHeartbeatsUntilStale) : 0;
  last_look_ = now;
  text_ = file.text;
  heartbeat_ns_ = file.heartbeat_ns;
  return watched_s_ >= limit_s(file) ? Verdict::gone : Verdict::unknown;
}

}  // namespace tessera
