// What each rank of a run is doing, where the other ranks and the launcher on this machine can see it, even when the
// rank is dead or stuck: so that a failure is told once, with the rank, the phase and the collective.
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
  // New, with a name for its ranks to open, or that of somebody who made it and has it still. Empty pages give a board
  // of nothing: what is written is lost.
  static std::unique_ptr<StatusBoard> create(int size);
  static std::unique_ptr<StatusBoard> open(const std::string& name, int size);
  ~StatusBoard();

  int size() const { return size_; }
  const std::string& name() const { return pages_.name(); }

  // ---- by a rank about itself
  void join(int rank);
  void enter_phase(int rank, const char* phase);
  void end(int rank, int exit_code);  // in order
  void fail(int rank, ExitCode code, std::string_view error);
  // Whether this caller is the first of all.
  bool claim_report();

  // While it lives the rank waits in this collective; where an exception ends it, the board goes on saying so.
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

  // ---- by whoever tells the user
  int pid_of(int rank) const;  // 0: it has not joined
  // Whether the process that joined as this rank lives: not another one that has got its number since.
  bool is_there(int rank) const;
  // Whether it joined and its process has ended, neither in order nor with a failure.
  bool is_lost(int rank) const;
  // Ranks that the first rank that failed found lost at that moment, if it failed in a communication: the causes.
  std::vector<int> found_lost() const;
  bool has_ended(int rank) const;
  bool is_waiting(int rank) const;
  // The highest of the ranks' exit codes once all have ended in order.
  std::optional<int> exit_code() const;
  // Whether ranks can see the board at all; a board of nothing says nothing about them.
  bool is_shared() const { return static_cast<bool>(pages_); }
  std::vector<int> absent() const;  // ranks that have not joined
  struct Failure {
    int rank;
    ExitCode code;
    std::string error;
  };
  // The first failure that is no consequence of another one: a communication failure only where there is no other.
  std::optional<Failure> first_failure() const;
  std::string phase_of(int rank) const;  // "step"; "start" before any
  // "Ranks 0, 2 waited in reduce_scatter of gradients of h.3." of all that did; empty: none.
  std::string waiting() const;
  // A failure's error, with the phase of its rank and, if it is its own, what the others waited in; of a usage error
  // that alone.
  std::string account(const Failure& failure) const;
  // "Rank 1 (process 17) is stopped, in phase step." of all that have neither failed nor ended in order and do not wait
  // for others, or will not go on: they are stopped or dead.
  std::string not_waiting() const;

 private:
  struct Slot;
  struct Header;
  StatusBoard(SharedPages pages, int size);
  Slot& slot(int rank) const;
  Header& header() const;

  SharedPages pages_;
  std::unique_ptr<std::byte[]> instead_;  // where there are no pages
  int size_;
};

}  // namespace tessera
