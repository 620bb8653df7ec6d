// Runs the collectives of a group of ranks, one after the other. Only one thread at a time may use a Collectives
// object. A group has two of these objects: one for calls on streams and one for calls on host values (communicator.h).
// Streams and host calls therefore do not wait for each other.
//
// Letters: R ranks of the group, P elements of a full array. Slice q of a full array is elements [P·q/R, P·(q+1)/R).
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/base/view.h"
#include "tessera/comm/status_board.h"

namespace tessera {

// The ranks of the group, and how long they wait for each other.
struct GroupInfo {
  int rank = 0;                  // of this process in the group
  std::vector<int> world_ranks;  // the rank in the world of each rank of the group; errors name world ranks
  double timeout_s = 600;
  StatusBoard* board = nullptr;  // shows the collective that this rank waits in; may be null

  int size() const { return static_cast<int>(world_ranks.size()); }
};

enum class Collective : uint32_t { all_gather, reduce_scatter, all_reduce, broadcast, exchange };
const char* name_of(Collective collective);

// What a rank announces to its peers about its current collective. All ranks must announce the same values, except
// `what`. In an exchange, `bytes` may also differ.
struct Call {
  Collective collective;
  DType dtype;
  int root;
  int64_t bytes;  // of `full` or `x`; in an exchange, of this rank's text
  char what[52];  // the name of the data, such as "gradients of h.3"; truncated if too long

  static Call make(Collective collective, DType dtype, int64_t bytes, const char* what, int root = 0);
  bool agrees_with(const Call& other) const;
  std::string to_string() const;  // "reduce_scatter of gradients of h.3"
};

class Collectives {
 public:
  explicit Collectives(const GroupInfo& group) : group_(group) {}
  virtual ~Collectives() = default;
  const GroupInfo& group() const { return group_; }

  // On failure, the five functions below throw CommunicationError. The object is then unusable.

  // Slice q of `full` = rank q's `shard`, for every q. `shard` may be in place: this rank's slice of `full`.
  virtual void all_gather(View shard, View full, const char* what) = 0;
  // `shard` = this rank's slice of the sum of all ranks' `full`. `shard` may be in place: this rank's slice of its
  // own `full`. All other slices of `full` stay unchanged.
  virtual void reduce_scatter(View full, View shard, const char* what) = 0;
  // x = the sum of all ranks' x.
  virtual void all_reduce(View x, const char* what) = 0;
  virtual void broadcast(View x, int root, const char* what) = 0;
  // Returns the texts of all ranks, by rank. Their lengths may differ.
  virtual std::vector<std::string> exchange(std::string_view text, const char* what) = 0;

 protected:
  using Clock = std::chrono::steady_clock;
  Clock::time_point deadline() const {
    return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(group_.timeout_s));
  }
  int64_t slice_begin(int64_t num_elems, int rank) const {  // P·q/R without overflow
    return num_elems / group_.size() * rank + num_elems % group_.size() * rank / group_.size();
  }
  View slice(View full, int rank) const {
    const View flat{full.data, full.dtype, {full.num_elems()}};
    return flat.rows(slice_begin(full.num_elems(), rank), slice_begin(full.num_elems(), rank + 1));
  }
  StatusBoard::Waiting waiting(const Call& call) const;
  // `ranks` are ranks of the group. Returns their world ranks as text for errors: "rank 1", "ranks 1, 3".
  std::string names_of(const std::vector<int>& ranks) const;
  [[noreturn]] void fail(const Call& call, const std::string& what, const std::string& remedy = "") const;
  [[noreturn]] void fail_waiting(const Call& call, const std::vector<int>& ranks) const;
  [[noreturn]] void fail_disagreeing(const Call& call, int peer, const Call& theirs) const;

 private:
  GroupInfo group_;
};

}  // namespace tessera
