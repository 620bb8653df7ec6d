#include "tessera/comm/ranks/peer_watch.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <utility>

#include "tessera/base/start_thread.h"

namespace tessera {
namespace {

// The time between two checks. It is well below the one second that mpirun leaves between SIGTERM and SIGKILL.
constexpr auto kInterval = std::chrono::milliseconds(100);

// A signal handler can access static data only.
std::atomic<bool> terminated{false};
static_assert(std::atomic<bool>::is_always_lock_free);

void note_termination(int) {
  terminated = true;
}

}  // namespace

PeerWatch::PeerWatch(const StatusBoard& board, int rank, std::function<void(int)> lost, std::function<void()> terminate)
    : board_(board), lost_(std::move(lost)), terminate_(std::move(terminate)) {
  for (int i = 1; i < board.size(); ++i) {
    // is_there() is false for ranks of other nodes, because only ranks of this node join the board. It is also false
    // for ranks whose processes this process cannot see.
    const int peer = (rank + i) % board.size();
    if (board.is_there(peer)) peers_.push_back(peer);
  }
  struct sigaction action {};
  sigaction(SIGTERM, nullptr, &action);
  puts_off_termination_ = !peers_.empty() && action.sa_handler == SIG_DFL;
  terminated = false;
  action.sa_handler = note_termination;
  action.sa_flags = SA_RESTART;
  if (puts_off_termination_) sigaction(SIGTERM, &action, nullptr);
  thread_ = start_thread("watching the other ranks", [this] { work(); });
}

PeerWatch::~PeerWatch() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  end_.notify_one();
  thread_.join();
  if (!puts_off_termination_) return;
  std::signal(SIGTERM, SIG_DFL);
  if (terminated) raise(SIGTERM);
}

std::optional<int> PeerWatch::lost() const {
  const auto it = std::find_if(peers_.begin(), peers_.end(), [this](int peer) { return board_.is_lost(peer); });
  return it == peers_.end() ? std::nullopt : std::optional(*it);
}

void PeerWatch::work() {
  std::unique_lock lock(mutex_);
  while (!peers_.empty() && !end_.wait_for(lock, kInterval, [this] { return ended_; })) {
    // This thread must read `terminated` before it reads the board. If SIGTERM arrived because a rank died, the board
    // then already shows that rank as lost.
    const bool asked_to_end = terminated;
    if (!asked_to_end && !board_.is_lost(peers_.front())) continue;
    lock.unlock();
    if (const auto peer = lost()) return lost_(*peer);
    if (asked_to_end) return terminate_();
    lock.lock();
  }
}

}  // namespace tessera
