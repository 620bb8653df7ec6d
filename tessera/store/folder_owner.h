// The owner of an output folder: the content of its owner file, and the decision whether the owner is alive.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>

#include "tessera/store/process.h"

namespace tessera {

// The process that owns an output folder. The process numbers of two owners are comparable only if their hosts, boots
// and namespaces of process numbers are the same.
struct FolderOwner {
  ProcessIdentity process;
  std::string boot_id;        // the kernel's id of the current boot; every boot of a machine has a new id
  std::string pid_namespace;  // the namespace of the process number, such as a container's
  double stale_after_s = 0;   // other hosts consider the owner gone after this time without a heartbeat

  static FolderOwner self(double stale_after_s);
  // to_text() returns the owner as one line of JSON, with a new random token. parse() reads such a line, and returns
  // nullopt for any other text.
  std::string to_text() const;
  static std::optional<FolderOwner> parse(const std::string& text);

  // Whether this process can look up the owner in the process table of this host.
  bool is_comparable_here() const;
  std::string shown() const;  // "process 123 on node7"
};

// An owner file as it was read.
struct OwnerFile {
  std::string text;
  std::optional<FolderOwner> owner;  // nullopt: the text is incomplete
  int64_t heartbeat_ns = 0;          // the file's modification time
};
// Returns nullopt if the file does not exist. Opens the file at each call, because a network file system then asks its
// server for the current state.
std::optional<OwnerFile> read_owner_file(const std::filesystem::path& path);

// The current time of the file system's clock: the modification time of a new file next to `path`. Throws RunError.
int64_t file_system_now_ns(const std::filesystem::path& path);

// Decides whether an owner is alive. The decision can need several calls of look(), with time between them.
class OwnerWatch {
 public:
  enum class Verdict { alive, gone, unknown };
  // There are three kinds of owners:
  //   - is_comparable_here() is true: the owner is alive if its process is alive, and gone otherwise.
  //   - is_comparable_here() is false: the owner is alive if its heartbeat changes between two calls. It is gone if two
  //     conditions are true: the last heartbeat is older than stale_after_s by the file system's clock, and the calls
  //     have seen no change for one and a half heartbeat intervals. The second condition protects a living owner if
  //     the clock that sets its heartbeats is slow.
  //   - The text of the owner file is incomplete: the owner is gone if the file is older than 30 s.
  // In all other cases, the verdict is unknown.
  Verdict look(const OwnerFile& file, const std::filesystem::path& path);
  double age_s() const { return age_s_; }  // age of the heartbeat at the last look(); 0 if it was not needed

 private:
  std::string text_;  // of the watched owner
  int64_t heartbeat_ns_ = 0;
  double age_s_ = 0;
  std::chrono::steady_clock::time_point since_;
};

// Number of heartbeat intervals in stale_after_s.
inline constexpr int kHeartbeatsUntilStale = 12;

}  // namespace tessera
