// Makes the state of each rank of a run visible to the other ranks and the launcher on this machine, even when the rank
// is dead or stuck. A failure can then be reported once, with the rank, the phase and the collective.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/comm/shared_pages.h"

namespace tessera {

class StatusBoard {
 public:
  // create() makes a new board. Other processes pass its name() to open() while the creator still holds the board.
  // Without shared pages the board is local: no other process sees what is written.
  static std::unique_ptr<StatusBoard> create(int size);
  static std::unique_ptr<StatusBoard> open(const std::string& name, int size);
  ~StatusBoard();

  int size() const { return size_; }
  const std::string& name() const { return pages_.name(); }

  // ---- Called by a rank about itself
  void join(int rank);
  void enter_phase(int rank, const char* phase);
  void end(int rank, int exit_code);  // normal end, without a failure
  void fail(int rank, ExitCode code, std::string_view error);
  // Returns true only for the first call among all ranks: the caller is then the rank that reports the failure.
  bool claim_report();

  // While the object lives, the board shows that the rank waits in the collective `call`. If an exception destroys the
  // object, the board continues to show this, so a report of the failure can name the collective.
  class Waiting {
   public:
    Waiting(StatusBoard* board, int rank, std::string_view call);
    ~Waiting();
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

   private:
    std::atomic<uint32_t>* in_use_ = nullptr;
    int exceptions_;
  };

  // ---- Called by the process that reports to the user
  int pid_of(int rank) const;  // 0: the rank has not joined
  // Whether the process that joined as this rank is alive. A new process with the same id does not count.
  bool is_there(int rank) const;
  // Whether the rank joined and its process is gone, and the rank has neither ended normally nor reported a failure.
  bool is_lost(int rank) const;
  // If the first reported failure is a communication failure, returns the ranks that were lost when it was reported:
  // they caused the failure. Otherwise empty.
  std::vector<int> found_lost() const;
  bool has_ended(int rank) const;  // normally, or with a failure
  bool is_waiting(int rank) const;
  // If all ranks have ended normally, returns their highest exit code. Otherwise nullopt.
  std::optional<int> exit_code() const;
  // Whether a signal has stopped a rank: the rank has ended normally, with ExitCode::kSavedAfterSignal.
  bool has_stopped() const;
  // Whether the board has shared pages. A board without them says nothing about other ranks.
  bool is_shared() const { return static_cast<bool>(pages_); }
  std::vector<int> absent() const;  // ranks that have not joined
  struct Failure {
    int rank;
    ExitCode code;
    std::string error;
  };
  // Returns the first failure that is not a communication failure, because communication failures are usually
  // consequences of other failures. If all failures are communication failures, returns the first of them.
  std::optional<Failure> first_failure() const;
  std::string phase_of(int rank) const;  // for example "step"; "start" before the first phase
  // "Ranks 0, 2 waited in reduce_scatter of gradients of h.3.": one sentence for each collective that ranks wait in.
  // Empty if no rank waits.
  std::string waiting() const;
  // Returns the error of a failure and the phase of its rank. If the failure is not a communication failure, also names
  // the collectives that other ranks waited in. For a usage error, returns only the error.
  std::string account(const Failure& failure) const;
  // "Rank 1 (process 17) is stopped, in phase step.": one sentence for each rank that is stopped, dead, or not waiting
  // in a collective. Omits ranks that have not joined, have failed or have ended normally.
  std::string not_waiting() const;

 private:
  struct RankStatus;
  struct Header;
  StatusBoard(SharedPages pages, int size);
  RankStatus& status_of(int rank) const;
  Header& header() const;

  SharedPages pages_;
  std::unique_ptr<std::byte[]> instead_;  // used if there are no pages
  int size_;
};

}  // namespace tessera
