// One run at a time in an output folder, even if runs are on different nodes.
#pragma once

#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "tessera/store/folder_owner.h"

namespace tessera {

// Owns an output folder through the owner file ".tessera-lock" in it, which exists while a run works there. The file
// names host, boot, process and start time. A thread renews its modification time. File locks are not used, because
// many cluster file systems reject flock() or keep it local to a node. Three operations must be atomic: giving a file a
// second name (link), creating a new file (O_EXCL) and renaming a file over another.
class OutputLock {
 public:
  static constexpr double kStaleAfterS = 180;
  static constexpr const char* kFileName = ".tessera-lock";
  // Part of the error if the owner is alive.
  static constexpr const char* kInUse = "is in use by another run";

  // Creates the folder if it is missing, but does not take it yet. Other hosts consider the owner gone after
  // `stale_after_s` without a heartbeat. RunError: the folder cannot be created.
  explicit OutputLock(const std::filesystem::path& folder, double stale_after_s = kStaleAfterS);
  // Removes the owner file.
  ~OutputLock();
  OutputLock(const OutputLock&) = delete;
  OutputLock& operator=(const OutputLock&) = delete;

  // Takes the folder if it is free or its owner is gone. Returns false if it is not yet known whether an owner on
  // another host is alive; waiting_for() describes the state. Call it again after pause(). UsageError: the owner is
  // alive; the message names its process and host. RunError: the folder cannot be read or written.
  bool try_take();
  const std::string& waiting_for() const { return waiting_for_; }
  void pause() const;

  // RunError if another run has taken the folder because this run sent no heartbeat. Call it before replacing anything
  // in the folder.
  void check_held() const;
  // The previous owner, if it was gone.
  const std::optional<ProcessIdentity>& predecessor() const { return predecessor_; }

 private:
  void begin(int descriptor);
  int make_exclusively(const std::filesystem::path& path) const;
  bool take_free();
  std::filesystem::path marker_of(const OwnerFile& seen) const;
  bool take_over(const OwnerFile& seen);
  bool remove_dead_marker(const OwnerFile& seen) const;
  void renew();

  const std::filesystem::path folder_, file_;
  const double stale_after_s_;
  OwnerWatch watch_;
  std::string text_;      // of the owner file, when the folder is taken
  int descriptor_ = -1;   // of the owner file, when the folder is taken
  double pause_s_ = 0.5;  // between two attempts
  std::string waiting_for_;
  std::optional<ProcessIdentity> predecessor_;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool ends_ = false;
  std::thread heartbeat_;
};

}  // namespace tessera
