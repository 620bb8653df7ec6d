// One run at a time in an output folder, wherever its nodes are.
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
// names host, boot, process and start time, and a thread renews its modification time. No lock of the file system takes
// part: many cluster file systems refuse flock() or keep it local to a node. What must be atomic is giving a file a
// second name (link), making a new file (O_EXCL), and giving a file another's name (rename).
class OutputLock {
 public:
  static constexpr double kStaleAfterS = 180;

  // Makes the folder if it is missing, and takes nothing yet. After `stale_after_s` without a heartbeat other hosts
  // take the owner for gone. RunError: the folder cannot be made.
  explicit OutputLock(const std::filesystem::path& folder, double stale_after_s = kStaleAfterS);
  // Removes the owner file.
  ~OutputLock();
  OutputLock(const OutputLock&) = delete;
  OutputLock& operator=(const OutputLock&) = delete;

  // Takes the folder if it is free or its owner is gone. False: the owner is on another host, and nobody knows yet
  // whether it lives; waiting_for() says what is missing. Call it again after pause(). UsageError: the owner lives; its
  // process and host are named. RunError: the folder cannot be read or written.
  bool try_take();
  const std::string& waiting_for() const { return waiting_for_; }
  void pause() const;

  // RunError when another run has taken the folder because this one gave no sign of life. Call it before anything is
  // replaced in the folder.
  void check_held() const;
  // The owner that was gone, where there was one.
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
  std::string text_;      // of the owner file, once the folder is taken
  int descriptor_ = -1;   // of the owner file, once the folder is taken
  double pause_s_ = 0.5;  // between two attempts
  std::string waiting_for_;
  std::optional<ProcessIdentity> predecessor_;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool ends_ = false;
  std::thread heartbeat_;
};

}  // namespace tessera
