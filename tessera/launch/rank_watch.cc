#include "tessera/launch/rank_watch.h"

#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>

namespace tessera {
namespace {

int open_process([[maybe_unused]] int pid) {
#ifdef SYS_pidfd_open
  return static_cast<int>(syscall(SYS_pidfd_open, pid, 0));  // the kernel closes the descriptor on exec
#else
  return -1;
#endif
}

// The first version of the kernel's struct pidfd_info, defined here because the system's headers may not have it.
struct ProcessInfo {
  uint64_t mask, cgroup;
  uint32_t ids[11];
  int32_t exit_status;
};
static_assert(sizeof(ProcessInfo) == 64);
constexpr uint64_t kExitStatus = 1 << 3;

bool has_ended(int descriptor) {
  pollfd event{descriptor, POLLIN, 0};
  return poll(&event, 1, 0) == 1;
}

}  // namespace

RankWatch::RankWatch(const StatusBoard& board) : board_(board), ranks_(static_cast<size_t>(board.size())) {}

RankWatch::~RankWatch() {
  for (const Rank& rank : ranks_) {
    if (rank.descriptor >= 0) close(rank.descriptor);
  }
}

void RankWatch::add_to(std::vector<pollfd>& events) {
  for (size_t i = 0; i < ranks_.size(); ++i) {
    Rank& rank = ranks_[i];
    const int pid = board_.pid_of(static_cast<int>(i));
    if (!rank.is_open && pid != 0) {
      rank.is_open = true;
      rank.descriptor = open_process(pid);
    }
    if (rank.descriptor >= 0 && !rank.has_gone) events.push_back({rank.descriptor, POLLIN, 0});
  }
}

std::vector<int> RankWatch::newly_lost() {
  std::vector<int> lost;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    Rank& rank = ranks_[i];
    const int number = static_cast<int>(i);
    if (rank.has_gone || !rank.is_open) continue;
    if (rank.descriptor >= 0 ? !has_ended(rank.descriptor) : board_.is_there(number)) continue;
    rank.has_gone = true;
    // This answer of the board is final, because a dead process cannot change the board.
    if (!board_.has_ended(number)) lost.push_back(number);
  }
  return lost;
}

int RankWatch::signal_of(int rank) const {
  const int descriptor = ranks_[static_cast<size_t>(rank)].descriptor;
  ProcessInfo info{.mask = kExitStatus, .cgroup = 0, .ids = {}, .exit_status = 0};
  bool is_known = false;
  for (int i = 0; descriptor >= 0 && !is_known && i < 50; ++i) {
    info.mask = kExitStatus;
    if (ioctl(descriptor, _IOWR(0xFF, 11, ProcessInfo), &info) != 0) return 0;
    is_known = info.mask & kExitStatus;
    if (!is_known) usleep(10'000);
  }
  return is_known && WIFSIGNALED(info.exit_status) ? WTERMSIG(info.exit_status) : 0;
}

}  // namespace tessera
