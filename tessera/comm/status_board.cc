#include "tessera/comm/status_board.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <map>
#include <new>

#include "tessera/base/process.h"

namespace tessera {
namespace {

// A text that one thread writes while other threads and processes read it. A reader may see a mixture of the old and
// the new text. This is harmless, because the texts appear only in messages.
template <size_t kWords>
struct SharedText {
  std::array<std::atomic<uint64_t>, kWords> words;

  void set(std::string_view text) {
    for (size_t i = 0; i < kWords; ++i) {
      uint64_t word = 0;
      if (text.size() > 8 * i) std::memcpy(&word, text.data() + 8 * i, std::min<size_t>(8, text.size() - 8 * i));
      words[i].store(word, std::memory_order_relaxed);
    }
  }
  std::string get() const {
    std::string text(8 * kWords, '\0');
    for (size_t i = 0; i < kWords; ++i) {
      const uint64_t word = words[i].load(std::memory_order_relaxed);
      std::memcpy(text.data() + 8 * i, &word, 8);
    }
    return text.substr(0, text.find('\0'));
  }
};

struct Wait {
  std::atomic<uint32_t> in_use;
  SharedText<8> call;
};

enum class State : uint32_t { absent, running, ended, failed };

std::string joined_ranks(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "Rank " : "Ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) text += fmt::format("{}{}", i > 0 ? ", " : "", ranks[i]);
  return text;
}

constexpr const char* kRunning = "is running";

// Returns kRunning, "is stopped" or "has ended".
const char* text_of(const std::optional<ProcessState>& process) {
  if (!process) return "has ended";
  return process->letter == 'T' || process->letter == 't' ? "is stopped" : kRunning;
}

}  // namespace

struct StatusBoard::Header {
  std::atomic<uint32_t> reported;
  std::atomic<uint32_t> num_failures;  // reported so far
};

struct alignas(64) StatusBoard::RankStatus {
  std::atomic<int32_t> pid;
  std::atomic<State> state;
  std::atomic<uint32_t> order;  // of the rank's failure among all failures, from 0
  std::atomic<int32_t> code;
  std::atomic<uint64_t> start_time;  // of the process
  std::atomic<uint32_t> found_lost;
  SharedText<4> phase;
  std::array<Wait, 4> waits;  // one per waiting thread
  SharedText<128> error;
};

StatusBoard::StatusBoard(SharedPages pages, int size) : pages_(std::move(pages)), size_(size) {
  if (!pages_) instead_ = std::make_unique<std::byte[]>((static_cast<size_t>(size) + 2) * sizeof(RankStatus));
}

StatusBoard::~StatusBoard() = default;

std::unique_ptr<StatusBoard> StatusBoard::create(int size) {
  const int64_t bytes = static_cast<int64_t>(sizeof(RankStatus)) * (size + 1);
  return std::unique_ptr<StatusBoard>(new StatusBoard(SharedPages::create(bytes), size));
}

std::unique_ptr<StatusBoard> StatusBoard::open(const std::string& name, int size) {
  const int64_t bytes = static_cast<int64_t>(sizeof(RankStatus)) * (size + 1);
  return std::unique_ptr<StatusBoard>(new StatusBoard(SharedPages::open(name, bytes), size));
}

StatusBoard::Header& StatusBoard::header() const {
  static_assert(sizeof(Header) <= sizeof(RankStatus));
  return reinterpret_cast<Header&>(status_of(-1));
}

// Rank -1 stands for the header, which uses the place before rank 0.
StatusBoard::RankStatus& StatusBoard::status_of(int rank) const {
  std::byte* data = pages_.data();
  if (!data) {
    const auto address = reinterpret_cast<uintptr_t>(instead_.get());
    data = instead_.get() + (alignof(RankStatus) - address % alignof(RankStatus)) % alignof(RankStatus);
  }
  return reinterpret_cast<RankStatus*>(data)[rank + 1];
}

void StatusBoard::join(int rank) {
  status_of(rank).start_time = state_of_process(getpid())->start_time;
  status_of(rank).pid = getpid();
  status_of(rank).state = State::running;
}

void StatusBoard::enter_phase(int rank, const char* phase) {
  status_of(rank).phase.set(phase);
}

void StatusBoard::end(int rank, int exit_code) {
  status_of(rank).code = exit_code;
  status_of(rank).state = State::ended;
}

void StatusBoard::fail(int rank, ExitCode code, std::string_view error) {
  RankStatus& mine = status_of(rank);
  mine.code = static_cast<int32_t>(code);
  mine.error.set(error);
  mine.order = header().num_failures.fetch_add(1);
  for (int other = 0; mine.order == 0 && code == ExitCode::kCommunication && other < size_; ++other) {
    status_of(other).found_lost = is_lost(other);
  }
  mine.state = State::failed;
}

bool StatusBoard::claim_report() {
  return header().reported.exchange(1) == 0;
}

StatusBoard::Waiting::Waiting(StatusBoard* board, int rank, std::string_view call)
    : exceptions_(std::uncaught_exceptions()) {
  if (!board) return;
  for (Wait& wait : board->status_of(rank).waits) {
    if (wait.in_use.exchange(1) != 0) continue;
    wait.call.set(call);
    in_use_ = &wait.in_use;
    return;
  }
}

StatusBoard::Waiting::~Waiting() {
  if (in_use_ && std::uncaught_exceptions() == exceptions_) in_use_->store(0);
}

int StatusBoard::pid_of(int rank) const {
  return status_of(rank).pid;
}

bool StatusBoard::is_there(int rank) const {
  const RankStatus& s = status_of(rank);
  if (s.pid == 0) return false;
  const auto found = state_of_process(s.pid);
  return found && found->start_time == s.start_time;
}

bool StatusBoard::is_lost(int rank) const {
  return !is_there(rank) && status_of(rank).state == State::running;  // reads state last: ranks set it before they end
}

std::vector<int> StatusBoard::found_lost() const {
  std::vector<int> ranks;
  for (int rank = 0; rank < size_; ++rank) {
    if (status_of(rank).found_lost) ranks.push_back(rank);
  }
  return ranks;
}

bool StatusBoard::has_ended(int rank) const {
  const State state = status_of(rank).state;
  return state == State::ended || state == State::failed;
}

std::optional<int> StatusBoard::exit_code() const {
  int highest = 0;
  for (int rank = 0; rank < size_; ++rank) {
    if (status_of(rank).state != State::ended) return std::nullopt;
    highest = std::max(highest, status_of(rank).code.load());
  }
  return highest;
}

bool StatusBoard::has_stopped() const {
  for (int rank = 0; rank < size_; ++rank) {
    const RankStatus& status = status_of(rank);
    if (status.state == State::ended && status.code == static_cast<int>(ExitCode::kSavedAfterSignal)) return true;
  }
  return false;
}

bool StatusBoard::is_waiting(int rank) const {
  const auto& waits = status_of(rank).waits;
  return std::any_of(waits.begin(), waits.end(), [](const Wait& wait) { return wait.in_use != 0; });
}

std::optional<StatusBoard::Failure> StatusBoard::first_failure() const {
  const RankStatus* first = nullptr;
  int rank_of_first = 0;
  const auto is_consequence = [](const RankStatus& s) { return s.code == static_cast<int>(ExitCode::kCommunication); };
  for (int rank = 0; rank < size_; ++rank) {
    const RankStatus& s = status_of(rank);
    if (s.state != State::failed) continue;
    const bool earlier =
        !first || std::pair(is_consequence(s), s.order.load()) < std::pair(is_consequence(*first), first->order.load());
    if (earlier) first = &s, rank_of_first = rank;
  }
  if (!first) return std::nullopt;
  return Failure{rank_of_first, static_cast<ExitCode>(first->code.load()), first->error.get()};
}

std::string StatusBoard::phase_of(int rank) const {
  const std::string phase = status_of(rank).phase.get();
  return phase.empty() ? "start" : phase;
}

std::string StatusBoard::waiting() const {
  std::map<std::string, std::vector<int>> ranks_in;  // ranks by collective
  for (int rank = 0; rank < size_; ++rank) {
    for (const Wait& wait : status_of(rank).waits) {
      if (wait.in_use) ranks_in[wait.call.get()].push_back(rank);
    }
  }
  std::string text;
  for (const auto& [call, ranks] : ranks_in) {
    text += fmt::format("{}{} waited in {}.", text.empty() ? "" : " ", joined_ranks(ranks), call);
  }
  return text;
}

std::string StatusBoard::account(const Failure& failure) const {
  std::string text = failure.error;
  if (failure.code == ExitCode::kUsage) return text;  // the phase does not matter for a usage error
  const auto add = [&](const std::string& sentence) {
    if (sentence.empty()) return;
    text += fmt::format("{}{}", text.ends_with('.') ? " " : ". ", sentence);
  };
  add(fmt::format("Rank {} was in phase {}.", failure.rank, phase_of(failure.rank)));
  if (failure.code != ExitCode::kCommunication) add(waiting());
  return text;
}

std::vector<int> StatusBoard::absent() const {
  std::vector<int> ranks;
  for (int rank = 0; rank < size_; ++rank) {
    if (status_of(rank).state == State::absent) ranks.push_back(rank);
  }
  return ranks;
}

std::string StatusBoard::not_waiting() const {
  std::string text;
  for (int rank = 0; rank < size_; ++rank) {
    const RankStatus& s = status_of(rank);
    if (s.state != State::running) continue;
    const std::string_view state = text_of(state_of_process(s.pid));
    if (is_waiting(rank) && state == kRunning) continue;
    text += fmt::format("{}Rank {} (process {}) {}, in phase {}.", text.empty() ? "" : " ", rank, s.pid.load(), state,
                        phase_of(rank));
  }
  return text;
}

}  // namespace tessera
