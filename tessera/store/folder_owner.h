// Who owns an output folder: what an owner file says, and what can be known of the owner from here.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>

#include "tessera/store/process.h"

namespace tessera {

// A process on a machine that runs. Two of them are comparable by their process number only where host, boot and
// namespace are the same.
struct FolderOwner {
  ProcessIdentity process;
  std::string boot_id;        // of the machine, new with every start
  std::string pid_namespace;  // in which the process has its number: that of a container
  double stale_after_s = 0;   // without a heartbeat for so long, other hosts take it for gone

  static FolderOwner self(double stale_after_s);
  // One line of JSON with a token of its own, and back; nothing for any other text.
  std::string to_text() const;
  static std::optional<FolderOwner> parse(const std::string& text);

  // Whether this process can see from the process table if the owner lives.
  bool is_comparable_here() const;
  std::string shown() const;  // "process 123 on node7"
};

// An owner file as it was found.
struct OwnerFile {
  std::string text;
  std::optional<FolderOwner> owner;  // nothing: the text is not complete yet, or never will be
  int64_t heartbeat_ns = 0;          // the file's modification time
};
// Nothing where there is no such file. Opens it again each time, which makes a network file system ask its server.
std::optional<OwnerFile> read_owner_file(const std::filesystem::path& path);

// The present time of the file system's own clock: the modification time of a file made beside `path` for it. RunError.
int64_t file_system_now_ns(const std::filesystem::path& path);

// Decides about one owner over several looks at its file.
class OwnerWatch {
 public:
  enum class Verdict { alive, gone, unknown };
  // The owner of a comparable process lives if its process does. Any other one lives if its heartbeat moves while it is
  // watched. It is gone when its last heartbeat is older than its stale_after_s by the file system's clock and has not
  // moved for one and a half intervals of heartbeats, in case two hosts' clocks differ.
  Verdict look(const OwnerFile& file, const std::filesystem::path& path);
  double age_s() const { return age_s_; }  // of the heartbeat, at the last look; 0 if it did not matter

 private:
  std::string text_;  // of the owner that is watched
  int64_t heartbeat_ns_ = 0;
  double age_s_ = 0;
  std::chrono::steady_clock::time_point since_;
};

// A run renews its owner file so many times in the time after which it counts as gone.
inline constexpr int kHeartbeatsUntilStale = 12;

}  // namespace tessera
