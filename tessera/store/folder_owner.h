// The owner of an output folder: the content of its owner file, and the decision whether the owner is alive.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>

#include "tessera/store/process.h"

namespace tessera {

// A process, and the boot of its machine. Process numbers of two owners are comparable only if host, boot and namespace
// match.
struct FolderOwner {
  ProcessIdentity process;
  std::string boot_id;        // of the machine; new at every boot
  std::string pid_namespace;  // the namespace of the process number, such as a container's
  double stale_after_s = 0;   // without a heartbeat for this time, other hosts consider the owner gone

  static FolderOwner self(double stale_after_s);
  // to_text() returns the owner as one line of JSON, with a new random token. parse() reads such a line, and returns
  // nullopt for any other text.
  std::string to_text() const;
  static std::optional<FolderOwner> parse(const std::string& text);

  // Whether the process table of this host shows if the owner is alive.
  bool is_comparable_here() const;
  std::string shown() const;  // "process 123 on node7"
};

// An owner file as it was read.
struct OwnerFile {
  std::string text;
  std::optional<FolderOwner> owner;  // nullopt: the text is incomplete
  int64_t heartbeat_ns = 0;          // the file's modification time
};
// Returns nullopt if there is no such file. Opens the file at each call, so that a network file system asks its server
// for the current state.
std::optional<OwnerFile> read_owner_file(const std::filesystem::path& path);

// The current time of the file system's clock: the modification time of a new file next to `path`. Throws RunError.
int64_t file_system_now_ns(const std::filesystem::path& path);

// Decides whether an owner is alive. This can need several looks at its file.
class OwnerWatch {
 public:
  enum class Verdict { alive, gone, unknown };
  // If is_comparable_here() is true for the owner, the owner is alive if its process is alive, and gone otherwise. Any
  // other owner is alive if its heartbeat changes while it is watched. It is gone only if both are true: by the file
  // system's clock, its last heartbeat is older than stale_after_s, and this heartbeat has been watched for one and a
  // half heartbeat intervals without a change. The second condition protects owners if clocks differ. If the text of an
  // owner file is incomplete, its owner is gone as soon as the file is older than 30 s. In all other cases, the verdict
  // is unknown.
  Verdict look(const OwnerFile& file, const std::filesystem::path& path);
  double age_s() const { return age_s_; }  // age of the heartbeat at the last look; 0 if that look did not use it

 private:
  std::string text_;  // of the watched owner
  int64_t heartbeat_ns_ = 0;
  double age_s_ = 0;
  std::chrono::steady_clock::time_point since_;
};

// Number of heartbeat intervals in stale_after_s.
inline constexpr int kHeartbeatsUntilStale = 12;

}  // namespace tessera
