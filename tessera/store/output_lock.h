// Allows one run at a time in an output folder, even if runs are on different nodes.
#pragma once

#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "tessera/store/folder_owner.h"

namespace tessera {

// Owns an output folder. While a run works in the folder, the owner file ".tessera-lock" exists there. The file
// identifies the run by host, boot, process and start time. A thread renews the file's modification time (the
// heartbeat). File locks are not used, because many cluster file systems reject flock() or keep it local to a node. The
// file system must perform three operations atomically: giving a file a second name (link), creating a new file
// (O_EXCL) and renaming a file over another file.
class OutputLock {
 public:
  static constexpr double kStaleAfterS = 180;
  static constexpr const char* kFileName = ".tessera-lock";
  // The error message of try_take() contains this text if the owner is alive.
  static constexpr const char* kInUse = "is in use by another run";

  // Creates the folder if it is missing, but does not take it yet. Other hosts consider this run gone after
  // `stale_after_s` without a heartbeat. This run waits for the rest of an incomplete owner file for
  // `incomplete_after_s`, but not longer than `stale_after_s`. Throws RunError: the folder cannot be created.
  explicit OutputLock(const std::filesystem::path& folder, double stale_after_s = kStaleAfterS,
                      double incomplete_after_s = OwnerWatch::kIncompleteAfterS);
  // Removes the owner file, if it is still this run's file.
  ~OutputLock();
  OutputLock(const OutputLock&) = delete;
  OutputLock& operator=(const OutputLock&) = delete;

  // Takes the folder if it is free or its owner is gone. Returns false if it is not yet known whether the owner is
  // alive, or if another run is taking the folder. waiting_for() then describes the state. Call try_take() again after
  // pause(). Throws UsageError: the owner is alive; the message names its process and host. Throws RunError: the folder
  // cannot be read or written, or the thread of the heartbeat cannot start. Throws InputError: the owner file is not a
  // regular file.
  bool try_take();
  const std::string& waiting_for() const { return waiting_for_; }
  void pause() const;

  // Throws RunError if another run has taken the folder because this run sent no heartbeat. Call it before replacing
  // anything in the folder.
  void check_held() const;
  // The present path of the folder that this run has taken. It changes if the folder, or a folder above it, is renamed.
  // Returns nullopt if the folder was removed, or moved to another file system.
  std::optional<std::filesystem::path> locate() const;
  // The previous owner, if it was gone and this run has taken its folder. Otherwise nullopt.
  const std::optional<ProcessIdentity>& predecessor() const { return predecessor_; }

 private:
  void begin(int descriptor);
  int make_exclusively(const std::filesystem::path& path) const;
  bool take_free();
  std::filesystem::path marker_of(const OwnerFile& seen) const;
  bool take_over(const OwnerFile& seen);
  bool remove_dead_marker(const OwnerFile& seen);
  void remove_own_file();
  void renew();
  bool is_taken_folder(const std::filesystem::path& path) const;

  const std::filesystem::path folder_, file_;
  const double stale_after_s_;
  OwnerWatch watch_, marker_watch_;
  std::string text_;     // content of this run's owner file
  int descriptor_ = -1;  // of the owner file; -1: the folder is not taken
  int folder_descriptor_ = -1;
  double pause_s_ = 0.5;  // time between two attempts
  std::string waiting_for_;
  std::optional<ProcessIdentity> predecessor_;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool ends_ = false;
  std::jthread heartbeat_;
};

}  // namespace tessera
