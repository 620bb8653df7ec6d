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

std::optional<FolderOwner> FolderOwner::parse(const std::string& text, std::string& fault) {
  using Json = nlohmann::json;
  constexpr double kLongestTimeoutS = 1e8;  // of --owner-timeout
  fault = text.empty() ? "is empty" : "is not a complete JSON object";
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return std::nullopt;
  const auto is_valid = [](std::string_view key, const Json& value) {
    if (key == "process") return value.is_number_integer() && value > 0 && value <= INT32_MAX;
    if (key == "start_time") return value.is_number_unsigned();
    if (key == "stale_after_s") return value.is_number() && value > 0 && value <= kLongestTimeoutS;
    return value.is_string();
  };
  for (const char* key : {"host", "process", "start_time", "boot_id", "pid_namespace", "stale_after_s"}) {
    const auto found = json.find(key);
    if (found != json.end() && is_valid(key, *found)) continue;
    fault = fmt::format(fmt::runtime(found == json.end() ? "has no \"{}\"" : "has a wrong \"{}\""), key);
    return std::nullopt;
  }
  fault.clear();
  return FolderOwner{{json["host"].get<std::string>(), json["process"].get<int>(), json["start_time"].get<uint64_t>()},
                     json["boot_id"].get<std::string>(),
                     json["pid_namespace"].get<std::string>(),
                     json["stale_after_s"].get<double>()};
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
  result.owner = FolderOwner::parse(result.text, result.fault);
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
