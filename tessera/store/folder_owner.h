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
  double stale_after_s = 0;   // a run on another host that sees no heartbeat for this time considers the owner gone

  static FolderOwner self(double stale_after_s);
  // to_text() returns the owner as one line of JSON, with a new random token. parse() reads such a line. For any other
  // text, it returns nullopt and sets `fault`, such as `has no "host"`.
  std::string to_text() const;
  static std::optional<FolderOwner> parse(const std::string& text, std::string& fault);

  // Whether this process can look up the owner in the process table of this host.
  bool is_comparable_here() const;
  std::string shown() const;  // "process 123 on node7"
};

// An owner file as it was read.
struct OwnerFile {
  std::string text;
  std::optional<FolderOwner> owner;  // nullopt: the text is incomplete
  int64_t heartbeat_ns = 0;          // the file's modification time
  std::string fault = {};            // what is wrong with an incomplete text
};
// Returns nullopt if the file does not exist. Opens the file at each call, because a network file system then asks its
// server for the current state.
std::optional<OwnerFile> read_owner_file(const std::filesystem::path& path);

// Number of heartbeat intervals in stale_after_s.
inline constexpr int kHeartbeatsUntilStale = 12;

// Decides whether an owner is alive. The decision can need several calls of look(), with time between them. It depends
// only on changes of the heartbeat and on this process's own monotonic clock. Clocks of hosts and file servers may
// differ or jump, so the watch never compares a heartbeat with the time of a clock.
class OwnerWatch {
 public:
  enum class Verdict { alive, gone, unknown };
  // An owner file whose text is still incomplete after this time has no living owner: a process writes the text
  // immediately after it has created the file.
  static constexpr double kIncompleteAfterS = 30;
  explicit OwnerWatch(double incomplete_after_s = kIncompleteAfterS) : incomplete_after_s_(incomplete_after_s) {}

  // There are three kinds of owners:
  //   - is_comparable_here() is true: the owner is alive if its process is alive, and gone otherwise.
  //   - is_comparable_here() is false: the owner is alive if its heartbeat changes between two calls. It is gone if the
  //     calls have seen no change for stale_after_s.
  //   - The text of the owner file is incomplete: the owner is gone if the text stays the same for incomplete_after_s.
  // In all other cases, the verdict is unknown.
  Verdict look(const OwnerFile& file);
  // The time without a change after which the owner is gone.
  double limit_s(const OwnerFile& file) const { return file.owner ? file.owner->stale_after_s : incomplete_after_s_; }

 private:
  using Clock = std::chrono::steady_clock;

  const double incomplete_after_s_;
  std::string text_;  // of the watched owner
  int64_t heartbeat_ns_ = 0;
  double watched_s_ = 0;  // the time without a change
  std::optional<Clock::time_point> last_look_;
};

}  // namespace tessera
